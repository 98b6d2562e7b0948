"""Where logs come from: each file reads one kind of source and gives it as rows of names and numbers."""
