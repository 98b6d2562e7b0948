"""Floats in, short numbers for a chart's JSON out: four significant digits, nothing that is not finite."""

from __future__ import annotations

import math
from collections.abc import Iterable

Short = float | int | None
DIGITS = 4
"""Significant digits: finer than a pixel of any screen."""


def lean(values: Iterable[float | None], digits: int = DIGITS) -> list[Short]:
    """Each value by `short`."""
    return [short(value, digits) for value in values]


def short(value: float | None, digits: int = DIGITS) -> Short:
    """A number with ``digits`` significant digits, whole ones as such; None for what is not finite."""
    if value is None or not math.isfinite(value):
        return None
    if value == 0:
        return 0
    if isinstance(value, int):
        return value
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 10**6 else rounded
