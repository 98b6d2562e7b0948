"""Two runs' values of one quantity in, where they part beyond the noise within a run, and whether for good, out. Pure.

What is held against the difference of two windows is how much such a difference moves by itself over
the run: the scatter between windows, taken at several distances. So values that drift slowly (as a
policy does between two seeds) need a larger difference than values that are drawn anew each step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import fmean, median, stdev
from typing import Any, Final

from kltune.diagnose.series import bound, noise
from kltune.symptoms.curve import Quantity

Points = Sequence[tuple[int, float, float]]
"""(step, A, B)."""

_CHANCE: Final = 0.01
"""That runs which differ by noise alone are said to part, over all steps and quantities."""
_WINDOW: Final = 5
"""Steps that are averaged, in a row of 20 or more."""
_FARTHEST: Final = 0.25
"""Share of the run that lies between two windows that are compared for the scatter, at most: so at most a
third of the pairs has one parting between them, which a median doesn't see."""
_LEAST_PAIRS: Final = 8
"""Pairs of windows below which their scatter is not known."""
_ROUNDING: Final = 1e-6
"""Share of the largest value within which two machines, or thread counts, may differ on the same run."""
_MAD_TO_SD: Final = 1.4826
"""Of a normal distribution."""
_MANY: Final = 20
"""Values from which the median change tells the noise well enough."""
_MEDIAN_WORTH: Final = 0.37
"""Of the values, in degrees of freedom: the efficiency of a median deviation."""
_SQUARE_WORTH: Final = 0.67
"""The same of the mean square of changes, two of which share each value."""
_HUGE: Final = 100.0
_LASTING_WINDOWS: Final = 3
"""Windows at the end that a parting for good fills at least."""
_LARGE: Final = 8.0
"""Scatters between windows that a parting for good comes to at its end, at least."""


@dataclass(frozen=True, slots=True)
class Parting:
    """One quantity of two runs."""

    quantity: Quantity
    unit: str
    step: int | None
    """Where they part beyond noise; none where they don't."""
    a: float
    """Mean over the steps at ``step`` (of the last ones where they don't part)."""
    b: float
    noise: float
    """Standard error of that difference, from its scatter over the run."""
    end_a: float
    """Mean over the last steps."""
    end_b: float
    is_lasting: bool = False
    """Whether they stay apart to the end, by far more than windows of steps scatter."""

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "quantity": self.quantity.value}


def parting(quantity: Quantity, unit: str, points: Points, num_quantities: int) -> Parting:
    """Where the mean difference over a few steps in a row, and over the next few, is beyond noise."""
    width = max(1, min(_WINDOW, len(points) // 4))
    start = next((i for i, (_, x, y) in enumerate(points) if x != y), len(points))
    rest = [x - y for _, x, y in points[start:]]
    means = [fmean(rest[i : i + width]) for i in range(len(rest) - width + 1)]
    error = max(_noise(rest) / math.sqrt(width), _scatter(means, width))
    looks = 2 * num_quantities * len(points) / width
    rounding = _ROUNDING * max(max(abs(x), abs(y)) for _, x, y in points)
    limit = max(_few(bound(_CHANCE, looks), len(rest)) * error, rounding)
    found = _first_beyond(means, width, limit)
    end = points[-width:]
    at = end if found is None else points[start + found : start + found + width]
    return Parting(
        quantity=quantity,
        unit=unit,
        step=None if found is None else at[0][0],
        a=fmean(x for _, x, _ in at),
        b=fmean(y for _, _, y in at),
        noise=error,
        end_a=fmean(x for _, x, _ in end),
        end_b=fmean(y for _, _, y in end),
        is_lasting=found is not None and _lasts(means, width, limit, max(_LARGE * error, rounding)),
    )


def _scatter(means: Sequence[float], width: int) -> float:
    """Standard deviation of a window's mean, from how far windows that don't overlap are from each other.

    The largest over several distances: what drifts slowly shows only between windows far apart. From the
    median around the median, so that one parting, or one that grows evenly, is not taken for scatter.
    """
    found = 0.0
    for apart in range(width, int(_FARTHEST * len(means)) + 1, width):
        changes = [b - a for a, b in zip(means, means[apart:], strict=False)]
        if len(changes) < _LEAST_PAIRS:
            break
        centre = median(changes)
        found = max(found, _MAD_TO_SD * median(abs(c - centre) for c in changes) / math.sqrt(2))
    return found


def _noise(differences: Sequence[float]) -> float:
    """From one difference to the next; of a few the plain standard deviation, which is surer than a median."""
    found = noise(differences)
    if found == 0 or len(differences) >= _MANY:
        return found
    return max(found, stdev(b - a for a, b in pairwise(differences)) / math.sqrt(2))


def _few(normal: float, count: int) -> float:
    """The bound of a normal distribution as one of Student's t, for a noise that is known from ``count`` values only.

    Wallace's approximation. Degrees of freedom: those of the median change, or of the mean square of few.
    """
    freedom = max(1.0, (count - 2) * (_MEDIAN_WORTH if count >= _MANY else _SQUARE_WORTH))
    scaled = normal * (8 * freedom + 3) / (8 * freedom + 1)
    return math.sqrt(freedom * math.expm1(min(scaled * scaled / freedom, _HUGE)))


def _first_beyond(means: Sequence[float], width: int, limit: float) -> int | None:
    """Index of the first window beyond the limit whose next one is beyond it as well, on the same side."""
    for index, mean in enumerate(means):
        follower = means[min(index + width, len(means) - 1)]
        if min(abs(mean), abs(follower)) > limit and mean * follower > 0:
            return index
    return None


def _lasts(means: Sequence[float], width: int, limit: float, large: float) -> bool:
    """Whether the last windows are all beyond the limit, on one side, and together far beyond the scatter."""
    tail = means[-(_LASTING_WINDOWS - 1) * width - 1 :]
    if len(tail) < (_LASTING_WINDOWS - 1) * width + 1:
        return False
    is_one_side = min(tail) * max(tail) > 0
    return is_one_side and min(map(abs, tail)) > limit and abs(fmean(tail)) > large
