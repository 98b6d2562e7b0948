"""Means of several settings and their variance in, means drawn towards each other out.

The highest of several noisy means is high partly by luck. James & Stein (1961), Estimation with
quadratic loss, in the form of Efron & Morris (1973) that shrinks towards the common mean and
never past it (positive part): from four settings on, its total squared error is below that of
the plain means whatever the truth is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

FEWEST_FOR_STEIN = 4
"""Settings from which on James-Stein towards the mean exists."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """Means after shrinkage."""

    values: tuple[float, ...]
    share: float
    """How far each went towards the common mean: 0 not at all, 1 all the way."""
    method: str


def shrink(means_K: np.ndarray, variance: float, df: float) -> Shrunk:
    """Draw ``means_K`` towards their mean; ``variance`` (of each about it) was estimated on ``df``.

    With two or three settings, where James-Stein has nothing to offer, the share is that of an
    empirical Bayes estimate: noise over noise plus what the means really differ by (by moments).
    """
    count = len(means_K)
    centre = float(means_K.mean())
    around = float(((means_K - centre) ** 2).sum())
    if count < FEWEST_FOR_STEIN:
        method, wanted = "empirical Bayes, by moments", (count - 1) * variance
    else:
        method = "James-Stein towards the mean, positive part"
        wanted = (count - 3) * variance * df / (df + 2)
    share = 0.0 if around <= 0 else min(1.0, wanted / around)
    values = centre + (1 - share) * (means_K - centre)
    return Shrunk(tuple(float(v) for v in values), share, method)
