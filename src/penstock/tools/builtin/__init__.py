"""The tools that are always there."""
