"""What a workflow is: its definition, its file format, its expressions and its compiled graph."""
