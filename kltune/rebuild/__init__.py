"""How shipped weights are made again from a seed."""
