"""One point of the search: what it was, where it lives on disk, what it is worth."""
