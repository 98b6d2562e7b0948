"""A few answers in, a commented spec out."""
