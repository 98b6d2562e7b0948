"""Two runs' logs in, where they part out: the first step and quantity beyond noise, and what was set differently. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from kltune.diagnose.rule import QUANTITY_WORDS
from kltune.diagnose.runlog import RunLog
from kltune.diagnose.series import bound, noise, shown
from kltune.metrics.jsonl import SCHEMA
from kltune.symptoms.curve import Quantity

_CHANCE = 0.01
"""That runs which differ by step-to-step noise alone are said to part, over all steps and quantities."""
_WINDOW = 5
"""Steps that are averaged, in a row of 20 or more."""
_ROUNDING = 1e-6
"""Share of the largest value within which two machines, or thread counts, may differ on the same run."""
_LEAST = 4
"""Common steps below which nothing is said of a quantity."""
_UNWATCHED = frozenset({Quantity.GOLD_SE, Quantity.K1_SEQ_SE})

Points = Sequence[tuple[int, float, float]]
"""(step, A, B)."""


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
    """Standard error of that difference."""
    end_a: float
    """Mean over the last steps."""
    end_b: float

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "quantity": self.quantity.value}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Where two runs part."""

    a: str
    b: str
    common: int
    """Steps that both have."""
    differs_at: tuple[int, Quantity] | None
    """The first step with a number that is not the same to the last digit, and which; none where there is none."""
    partings: tuple[Parting, ...]
    """The earliest first; those that don't part last."""
    left_out: tuple[str, ...]
    """What can't be held against each other, and why."""
    facts: tuple[tuple[str, str, str], ...]
    """(name, A, B) of what was set differently."""

    @property
    def first(self) -> Parting | None:
        """Where they part first."""
        parted = [one for one in self.partings if one.step is not None]
        return parted[0] if parted else None

    def headline(self) -> str:
        """The verdict in a sentence."""
        if not self.common:
            return "The runs have no step in common."
        if self.differs_at is None:
            return f"The runs are the same in every number of their {self.common} common steps."
        step, quantity = self.differs_at
        start = f"First different number: {QUANTITY_WORDS[quantity]} at step {step}"
        if self.first is None:
            return f"{start}; beyond noise they don't part in {self.common} common steps."
        first = self.first
        unit = f" {first.unit}" if first.unit else ""
        return (
            f"{start}. They part beyond noise at step {first.step} first, by {QUANTITY_WORDS[first.quantity]}: "
            f"{shown(first.a)} against {shown(first.b)}{unit}."
        )

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        differs = self.differs_at
        return {
            "schema": SCHEMA,
            "a": self.a,
            "b": self.b,
            "common_steps": self.common,
            "differs_at": [differs[0], differs[1].value] if differs else None,
            "partings": [one.as_json() for one in self.partings],
            "left_out": list(self.left_out),
            "facts": [{"name": name, "a": a, "b": b} for name, a, b in self.facts],
            "headline": self.headline(),
        }


def compare(a: RunLog, b: RunLog) -> Comparison:
    """Hold two runs against each other, quantity by quantity, at the steps that both have."""
    left_out: list[str] = []
    points: dict[Quantity, Points] = {}
    for quantity in Quantity:
        why = _why_not(a, b, quantity)
        if why:
            left_out.append(why)
            continue
        known = dict(a.curve.known(quantity)), dict(b.curve.known(quantity))
        common = [(step, known[0][step], known[1][step]) for step in known[0] if step in known[1]]
        if common:
            points[quantity] = common
    different = [(step, q) for q, listed in points.items() for step, x, y in listed if x != y]
    watched = {q: p for q, p in points.items() if len(p) >= _LEAST and q not in _UNWATCHED}
    partings = [
        _parting(quantity, _unit(a, quantity), listed, len(watched))
        for quantity, listed in watched.items()
    ]
    return Comparison(
        a=a.path,
        b=b.path,
        common=len(set(a.curve.steps) & set(b.curve.steps)),
        differs_at=min(different, default=None, key=lambda pair: pair[0]),
        partings=tuple(sorted(partings, key=lambda p: math.inf if p.step is None else p.step)),
        left_out=tuple(left_out),
        facts=_facts(a, b),
    )


def _why_not(a: RunLog, b: RunLog, quantity: Quantity) -> str:
    """Why a quantity of both can't be compared; empty where it can, or where neither has it."""
    has = a.curve.has(quantity), b.curve.has(quantity)
    words = QUANTITY_WORDS[quantity]
    if has[0] != has[1]:
        return f"{words}: only {'A' if has[0] else 'B'} has it"
    one, other = a.readings.get(quantity), b.readings.get(quantity)
    if not all(has) or one is None or other is None:
        return ""
    if one.unit != other.unit:
        return f"{words}: A is in {one.unit or 'no unit'}, B in {other.unit or 'no unit'}"
    if one.estimator and other.estimator and one.estimator != other.estimator:
        return f"{words}: A is {one.estimator}, B {other.estimator}; estimators can't be compared"
    return ""


def _unit(run: RunLog, quantity: Quantity) -> str:
    reading = run.readings.get(quantity)
    # A pure number has the unit 1, which tells a person nothing.
    return reading.unit.removeprefix("1") if reading is not None else ""


def _parting(quantity: Quantity, unit: str, points: Points, num_quantities: int) -> Parting:
    """Where the mean difference over a few steps in a row, and over the next few, is beyond noise."""
    width = max(1, min(_WINDOW, len(points) // 4))
    start = next((i for i, (_, x, y) in enumerate(points) if x != y), len(points))
    rest = [x - y for _, x, y in points[start:]]
    one = noise(rest)
    error = one / math.sqrt(width)
    looks = 2 * num_quantities * len(points) / width
    scale = max(max(abs(x), abs(y)) for _, x, y in points)
    limit = max(bound(_CHANCE, looks) * error, _ROUNDING * scale)
    found = _first_beyond(rest, width, limit)
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
    )


def _first_beyond(differences: Sequence[float], width: int, limit: float) -> int | None:
    """Index of the first window beyond the limit whose next one is beyond it as well, on the same side."""
    means = [fmean(differences[i : i + width]) for i in range(len(differences) - width + 1)]
    for index, mean in enumerate(means):
        follower = means[min(index + width, len(means) - 1)]
        if min(abs(mean), abs(follower)) > limit and mean * follower > 0:
            return index
    return None


def _facts(a: RunLog, b: RunLog) -> tuple[tuple[str, str, str], ...]:
    names = sorted({*a.facts, *b.facts})
    return tuple(
        (name, _fact(a, name), _fact(b, name))
        for name in names
        if a.facts.get(name) != b.facts.get(name)
    )


def _fact(run: RunLog, name: str) -> str:
    value = run.facts.get(name)
    return (
        "not known" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    )
