"""The penalties and betas that are compared, and how a setting of the two is called."""

from __future__ import annotations

NO_KL = "no KL"
BETAS = (0.05, 0.15, 0.5)
"""Raw reward per nat of sequence KL."""
SOUND = ("k1-reward", "exact-full", "k2-loss", "k3-loss")
BIASED = ("k1-loss", "k3-reward")
"""Refused unless allow_biased."""
K1 = SOUND[0]


def arm(penalty: str, beta: float) -> str:
    """The name of a setting."""
    return f"{penalty} {beta:g}"
