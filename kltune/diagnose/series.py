"""(step, value) pairs of one quantity in, its level, noise and trend out. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import NormalDist, fmean, median, stdev

Pairs = Sequence[tuple[int, float]]

_ROUNDING = 1e-9
"""Share of the values that is no noise but their last digits."""
_MAD_TO_SD = 1.4826
"""Of a normal distribution."""


def values(pairs: Pairs) -> list[float]:
    """Without the steps."""
    return [value for _, value in pairs]


def last_part(pairs: Pairs, share: float = 0.25, least: int = 3) -> Pairs:
    """The last ``share`` of the pairs, ``least`` of them at least (all, where there are fewer)."""
    return pairs[-max(least, math.ceil(share * len(pairs))) :]


def first_part(pairs: Pairs, share: float = 0.25, least: int = 3) -> Pairs:
    """The same at the start."""
    return pairs[: max(least, math.ceil(share * len(pairs)))]


def level(pairs: Pairs) -> float:
    """Median of the values: one spike doesn't move it."""
    return median(values(pairs))


def noise(numbers: Sequence[float]) -> float:
    """Standard deviation from one value to the next around any slow trend; 0 below three values.

    From the median absolute change, so that a jump or two don't count; where most changes are
    alike, from their mean square.
    """
    changes = [b - a for a, b in pairwise(numbers)]
    if len(changes) < 2:
        return 0.0
    centre = median(changes)
    spread = _MAD_TO_SD * median(abs(change - centre) for change in changes)
    found = (spread or stdev(changes)) / math.sqrt(2)
    return found if found > _ROUNDING * max(map(abs, numbers)) else 0.0


def moving_mean(pairs: Pairs, width: int) -> list[tuple[int, int, float]]:
    """(first step, last step, mean) of every ``width`` values in a row."""
    return [
        (pairs[i][0], pairs[i + width - 1][0], fmean(values(pairs[i : i + width])))
        for i in range(len(pairs) - width + 1)
    ]


def slope(x: Sequence[float], y: Sequence[float]) -> tuple[float, float] | None:
    """Least-squares slope of y on x and its standard error; none where x does not vary or has < 5 values."""
    count = len(x)
    if count < 5:
        return None
    mean_x, mean_y = fmean(x), fmean(y)
    square = sum((a - mean_x) ** 2 for a in x)
    if square <= 0:
        return None
    steepness = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / square
    rest = sum((b - mean_y - steepness * (a - mean_x)) ** 2 for a, b in zip(x, y, strict=True))
    return steepness, math.sqrt(rest / (count - 2) / square)


def bound(chance: float, looks: float) -> float:
    """Standard errors beyond which the largest of ``looks`` normal numbers lies with ``chance`` at most."""
    return NormalDist().inv_cdf(1 - chance / max(1.0, looks))


def counted(count: int, noun: str) -> str:
    """``1 step``, ``2 steps``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def shown(value: float) -> str:
    """A number for people: three digits."""
    return f"{value:.3g}"


def steps_text(first: int, last: int) -> str:
    """``step 3`` or ``steps 3-9``."""
    return f"step {first}" if first == last else f"steps {first}-{last}"
