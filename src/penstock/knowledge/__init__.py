"""What is known of tools: how to find them, and how they were used."""
