"""Text in, the same text without its secrets out."""
