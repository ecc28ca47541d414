"""The HTTP API: what the command line does, for programs and pages."""
