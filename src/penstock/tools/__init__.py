"""What can be called."""
