"""What a step does when its turn comes."""
