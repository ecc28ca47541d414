"""Where runs are remembered."""
