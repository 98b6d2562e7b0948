"""What a person watches while a study runs: a live table on a terminal, plain lines elsewhere."""
