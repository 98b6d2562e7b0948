"""A spec in, whether everything beneath its numbers is sound out; nothing is trained."""
