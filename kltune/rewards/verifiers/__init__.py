"""Rewards that check an answer: mathematics, JSON, code."""
