"""Intervals over seeds, several at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats


def at_once(values_S: NDArray[np.float64], comparisons: int = 1) -> dict[str, Any]:
    """Mean over seeds with its 95 % interval; ``comparisons`` such intervals hold at once.

    Bonferroni's limit: settings have their own spreads and do not always share a reference. Seeds without
    a value (nan) are left out; ``num`` is how many have one, ``half`` the interval's half width.
    """
    values_S = values_S[np.isfinite(values_S)]
    num = len(values_S)
    mean = float(np.mean(values_S)) if num else math.nan
    if num < 2:
        return {"mean": mean, "low": -math.inf, "high": math.inf, "half": math.inf, "num": num}
    spread = float(np.std(values_S, ddof=1)) / math.sqrt(num)
    half = float(stats.t.isf(0.025 / comparisons, num - 1)) * spread
    return {"mean": mean, "low": mean - half, "high": mean + half, "half": half, "num": num}


def factor_at_once(logs_S: NDArray[np.float64], comparisons: int = 1) -> dict[str, Any]:
    """Likewise of factors whose logarithms are given: their geometric mean; ``half`` is the factor on either side."""
    found = at_once(logs_S, comparisons)
    return {key: value if key == "num" else _exp(value) for key, value in found.items()}


def told(found: Mapping[str, float], null: float = 0.0) -> str:
    """Where an interval lies: ``below``, ``above`` or around (``untold``) a value."""
    if found["high"] < null:
        return "below"
    return "above" if found["low"] > null else "untold"


def _exp(value: float) -> float:
    return math.inf if value > 700 else math.exp(value)
