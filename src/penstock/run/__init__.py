"""What a run is: facts in, events out, one fold between them. Pure."""
