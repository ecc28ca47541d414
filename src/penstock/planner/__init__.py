"""What proposes workflows, and how much of a conversation tools may take."""
