"""The go or no-go before the big run."""
