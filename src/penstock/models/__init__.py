"""Language models: who can be asked, what they answer, and what it means when they do not."""
