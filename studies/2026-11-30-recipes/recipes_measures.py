"""What is measured of a run, by seed. Shapes: S seeds, C evaluations, N training steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kltune.statistics.arms import MeanInterval

BEFORE = 10
"""Steps in which no arm has moved far."""


def log_kl_along(kl_SN: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log of each seed's KL along the run: the geometric mean after step `BEFORE`."""
    return np.log(np.maximum(kl_SN[:, BEFORE:], 1e-3)).mean(axis=1)


def log_kl_end(kl_SC: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log of each seed's KL at the end, the mean of the last two evaluations as of gold; KL is a matter of factors."""
    return np.log(kl_SC[:, -2:].mean(axis=1))


def factor(log: MeanInterval) -> dict[str, float]:
    """An interval of logarithms as one of factors."""
    return {name: float(np.exp(getattr(log, name))) for name in ("mean", "low", "high")}
