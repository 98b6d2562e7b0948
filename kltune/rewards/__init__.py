"""Rewards that are not a plain function: learned from comparisons."""
