"""Swings of one run: how often KL crosses a whole band about its target, and how long that takes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

HIGH, LOW = 1.25, 0.8
"""A swing crosses this band of KL over target; one that only comes up to the target makes none."""
LEAST = 10
"""Steps below which swings are not counted."""


def swing_steps(relative_T: NDArray[np.float64]) -> list[int]:
    """Places at which KL over target has crossed the whole band: from above `HIGH` to below `LOW`, or back.

    Noise within the band makes none, however often it crosses the target itself.
    """
    found: list[int] = []
    side = 0
    for place, value in enumerate(relative_T):
        now = 1 if value > HIGH else -1 if value < LOW else side
        if side and now != side:
            found.append(place)
        side = now
    return found


def swings_of(relative_T: NDArray[np.float64]) -> tuple[float, float]:
    """(swings per 10 steps, period in steps): the period is twice the mean time from swing to swing.

    nan where there are fewer than `LEAST` steps, or than two swings.
    """
    if len(relative_T) < LEAST:
        return math.nan, math.nan
    places = swing_steps(relative_T)
    period = 2 * float(np.mean(np.diff(places))) if len(places) > 1 else math.nan
    return 10 * len(places) / len(relative_T), period
