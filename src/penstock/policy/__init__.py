"""Every decision, as functions of (facts, now). No clock, no chance, no I/O."""
