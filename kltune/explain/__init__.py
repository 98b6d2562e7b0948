"""``kltune explain``: a person's numbers in, one screen or strict JSON out; all of it computed on the spot, no torch."""
