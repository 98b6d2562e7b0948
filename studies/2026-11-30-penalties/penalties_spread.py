"""Spread over seeds: of one setting, and of one relative to another."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats


def spread_ratio(
    values_S: NDArray[np.float64], others_S: NDArray[np.float64], comparisons: int = 1
) -> dict[str, Any]:
    """Ratio of two spreads over the same seeds, with its interval (Pitman 1939, Morgan 1939)."""
    num = len(values_S)
    ratio = float(np.var(values_S, ddof=1) / np.var(others_S, ddof=1))
    if num < 3:
        return {"mean": math.sqrt(ratio), "low": 0.0, "high": math.inf, "num": num}
    r = float(np.corrcoef(values_S, others_S)[0, 1])
    limit = float(stats.t.isf(0.025 / comparisons, num - 2))
    k = 1 + 2 * (1 - r * r) * limit**2 / (num - 2)
    width = math.sqrt(k * k - 1)
    low, high = math.sqrt(ratio * (k - width)), math.sqrt(ratio * (k + width))
    return {"mean": math.sqrt(ratio), "low": low, "high": high, "num": num}


def spread(values_S: NDArray[np.float64]) -> dict[str, Any]:
    """Standard deviation over seeds with its 95 % interval (chi squared)."""
    num, sd = len(values_S), float(np.std(values_S, ddof=1))
    low, high = (math.sqrt((num - 1) / stats.chi2.isf(p, num - 1)) for p in (0.025, 0.975))
    return {"mean": sd, "low": sd * low, "high": sd * high, "num": num}
