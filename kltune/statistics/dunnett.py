"""How many settings are compared with one and on how many degrees of freedom in, Dunnett's limit out.

Dunnett (1955), A multiple comparison procedure for comparing several treatments with a control:
the largest of m Student t that share a control (any two correlate at 1/2) stays within the limit
with the confidence that was asked for, if no setting differs from the control.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from scipy import optimize, special, stats

_NODES = 48
"""Of each integral; the limits are then those of the published tables to all their digits."""


def within(limit: float, comparisons: int, df: float) -> float:
    """Probability that all ``comparisons`` |t| stay within ``limit``, where nothing differs.

    Two integrals by Gauss-Legendre: over the control's own error and over the estimated spread.
    """
    assert comparisons >= 1
    if comparisons == 1:
        return float(1 - 2 * stats.t.sf(limit, df))
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    share, weight = (nodes + 1) / 2, weights / 2
    # The spread over its estimate: chi(df) / sqrt(df), by its quantiles, so that weights stay plain.
    spread_I = np.sqrt(special.chdtri(df, 1 - share) / df)
    control_J = special.ndtri(share)
    bound_I1 = limit * np.sqrt(2.0) * spread_I[:, None]
    inside_IJ = special.ndtr(control_J + bound_I1) - special.ndtr(control_J - bound_I1)
    return float(weight @ (inside_IJ**comparisons) @ weight)


@lru_cache(maxsize=256)
def critical(comparisons: int, df: float, confidence: float) -> float:
    """Standard errors on either side that ``comparisons`` intervals need to hold at once."""
    if comparisons == 1:
        return float(stats.t.ppf((1 + confidence) / 2, df))

    def excess(limit: float) -> float:
        return within(limit, comparisons, df) - confidence

    # Not below one comparison's limit, nor above Bonferroni's.
    low = float(stats.t.ppf((1 + confidence) / 2, df))
    high = float(stats.t.isf((1 - confidence) / 2 / comparisons, df)) * 1.01
    root: Any = optimize.brentq(excess, low, high, xtol=1e-8)
    return float(root)


def adjusted_p(t: float, comparisons: int, df: float) -> float:
    """Chance of some |t| as large as this among ``comparisons``, where nothing differs."""
    return max(0.0, 1 - within(abs(t), comparisons, df))
