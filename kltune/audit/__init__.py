"""What a pair of policies says about KL penalties: numbers of sampled blocks in, verdicts and a table out."""
