"""Who carries effects out."""
