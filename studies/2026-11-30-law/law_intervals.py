"""Means over draws of the proxy, with 95 % intervals; without one where fewer than two have a value."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np
from law_runs import Floats

from kltune.statistics.arms import mean_of

FEWEST = 3
"""Draws that must have reached a KL."""


def mean_of_draws(values_S: Floats, comparisons: int = 1) -> dict[str, Any]:
    """Mean with interval over the draws that have a value."""
    seen = np.asarray(values_S, dtype=np.float64)
    seen = seen[np.isfinite(seen)]
    if len(seen) < 2:
        return {"mean": None, "low": None, "high": None, "sd": None, "num": len(seen)}
    return asdict(mean_of(seen, comparisons))


def mean_if_enough(values_S: Floats, comparisons: int) -> dict[str, Any]:
    """A mean, if enough draws got there."""
    seen = int(np.isfinite(values_S).sum())
    return mean_of_draws(values_S, comparisons) if seen >= FEWEST else {"mean": None, "num": seen}


def factor_of_draws(a_S: Floats, b_S: Floats | float = 1.0, comparisons: int = 1) -> dict[str, Any]:
    """Geometric mean of a ratio (or of a KL) with its interval; ``comparisons`` such intervals hold at once."""
    found = mean_of_draws(np.log(a_S / b_S), comparisons)
    return {k: math.exp(v) if k in ("mean", "low", "high") else v for k, v in found.items()}
