"""A study's record in, DataFrames and table files out."""
