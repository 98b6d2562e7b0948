"""Logged values in, their means over the last and the first steps out: what most rules compare."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from kltune.symptoms.curve import Curve, Quantity


@dataclass(frozen=True, slots=True)
class Window:
    """Some logged values of one quantity in a row."""

    first_step: int
    last_step: int
    mean: float
    se: float
    """Standard error of the mean, from the spread between steps; infinite for a single value."""


def early_and_late(curve: Curve, quantity: Quantity, size: int) -> tuple[Window, Window] | None:
    """The first and the last ``size`` logged values; none where they overlap."""
    known = curve.known(quantity)
    if len(known) < 2 * size:
        return None
    return _window(known[:size]), _window(known[-size:])


def late(curve: Curve, quantity: Quantity, size: int) -> Window | None:
    """The last ``size`` logged values; none where there are fewer."""
    known = curve.known(quantity)
    return _window(known[-size:]) if len(known) >= size else None


def steps_words(steps: Sequence[int], noun: str = "step") -> str:
    """``1 step (step 7)`` or ``3 steps (steps 5-7)``; evaluations are named with their steps."""
    if len(steps) == 1:
        return f"1 {noun} (step {steps[0]})"
    return f"{len(steps)} {noun}s (steps {steps[0]}-{steps[-1]})"


def _window(known: Sequence[tuple[int, float]]) -> Window:
    values = [value for _, value in known]
    se = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return Window(known[0][0], known[-1][0], fmean(values), se)
