"""KL over the steps of a trial in; whether it has settled, out.

A KL that still rises when the trial ends was set by where the trial ended and not by beta: its
gold says what that KL is worth, and little of what that beta would come to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from kltune.statistics.law_errors import Floats, student_t

TAIL: Final = 0.5
"""The share of the steps, at the end, that is looked at."""

FEWEST_STEPS: Final = 16
"""In the tail; fewer say nothing."""

SETTLED_WITHIN: Final = 2.0
"""KL has settled if it changes by less than this factor over the tail, at 95 % confidence."""


class Trend(StrEnum):
    """What KL does over the last half of a trial."""

    RISING = "still rising"
    FALLING = "still falling"
    SETTLED = "settled"
    UNTOLD = "can't be told"


@dataclass(frozen=True, slots=True)
class Settling:
    """The trend of log KL over the tail."""

    trend: Trend
    factor: float
    """By which KL changes over the tail on a straight line through log KL; nan: not known."""
    low: float
    high: float
    """95 % interval of the factor."""
    level: float
    """Median KL of the tail, in the unit that came in."""
    num_steps: int
    """Of the tail."""


def settling(kl_T: Floats) -> Settling:
    """Judge the last half of a trial by the slope of log KL over its steps.

    Steps are not independent: the slope's error allows for a first-order autocorrelation of the
    residuals, corrected for its bias in short series with a trend (about -(2 + 4 rho) / n; Kendall
    1954, Marriott & Pope 1954), with as many degrees of freedom as there are independent steps.
    Settled means that a change by a factor of 2 is ruled out, not only that none is seen.
    """
    kl = np.asarray(kl_T, dtype=np.float64)
    kl = kl[np.isfinite(kl)]
    tail = kl[len(kl) - math.ceil(TAIL * len(kl)) :]
    level = float(np.median(tail)) if tail.size else math.nan
    if tail.size < FEWEST_STEPS or level <= 0:
        return Settling(Trend.UNTOLD, math.nan, math.nan, math.nan, level, int(tail.size))
    # A single step's KL may be 0 or below by noise and has no logarithm; a hundredth of the level has.
    change, half = _change(np.log(np.maximum(tail, 0.01 * level)))
    low, high = change - half, change + half
    trend = Trend.UNTOLD
    if -math.log(SETTLED_WITHIN) < low and high < math.log(SETTLED_WITHIN):
        trend = Trend.SETTLED
    elif low > 0:
        trend = Trend.RISING
    elif high < 0:
        trend = Trend.FALLING
    factor, low, high = (math.exp(min(700.0, max(-700.0, x))) for x in (change, low, high))
    return Settling(trend, factor, low, high, level, int(tail.size))


def plateaued(kl_T: Floats) -> bool:
    """Whether KL has reached a plateau by the end of the trial."""
    return settling(kl_T).trend is Trend.SETTLED


def _change(y_T: Floats) -> tuple[float, float]:
    """Change of a straight line from one end to the other, and the half width of its interval."""
    size = len(y_T)
    time_T = np.linspace(-0.5, 0.5, size)
    change = float(time_T @ y_T) / float(time_T @ time_T)
    rest_T = y_T - y_T.mean() - change * time_T
    square = float(rest_T @ rest_T)
    if square <= 1e-20 * size:
        return change, 0.0
    raw = float(rest_T[1:] @ rest_T[:-1]) / square
    rho = min(0.97, max(0.0, (raw * size + 2) / (size - 4)))
    lag_TT = rho ** np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    basis_TC = np.stack([np.ones(size), time_T], axis=1)
    rest_TT = np.eye(size) - basis_TC @ np.linalg.pinv(basis_TC)
    variance = square / float((rest_TT * lag_TT).sum())
    se = math.sqrt(variance * float(time_T @ lag_TT @ time_T)) / float(time_T @ time_T)
    df = max(2.0, size * (1 - rho) / (1 + rho) - 2)
    return change, student_t(df) * se
