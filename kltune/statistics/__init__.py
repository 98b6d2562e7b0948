"""Pure functions of arrays: forecasts, peaks, ties, tests and laws, each with its uncertainty."""
