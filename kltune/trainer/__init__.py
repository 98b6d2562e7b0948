"""The embedded trainer: the bank of K trials over one frozen base."""
