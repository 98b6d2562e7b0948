"""Two runs' logs in, where they part out: the first step and quantity beyond noise, and what was set differently. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kltune.diagnose.facts import ENDED_BY
from kltune.diagnose.parting import Parting, Points, parting
from kltune.diagnose.rule import QUANTITY_WORDS
from kltune.diagnose.runlog import RunLog
from kltune.diagnose.series import counted, shown
from kltune.metrics.jsonl import SCHEMA
from kltune.symptoms.curve import Quantity

_LEAST = 4
"""Common steps below which nothing is said of a quantity."""
_UNWATCHED = frozenset({Quantity.GOLD_SE, Quantity.K1_SEQ_SE})
_EXTREMES = frozenset({Quantity.KL_MAX_TOKEN, Quantity.KL_P99_TOKEN})
"""Of single tokens: their scatter has heavy tails, so they are named after all others."""
_SETTINGS = frozenset({Quantity.BETA, Quantity.TARGET, Quantity.LEARNING_RATE})
"""What is set, or follows from what is set: no evidence that the policies differ."""
SEEDS = (
    "Two seeds of one setting can differ by as much: the noise within a run is not the noise between seeds. To tell a "
    "setting from its seeds, run each with 3 seeds or more (kltune validate)."
)
"""What a parting of two single runs does not show."""


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
    """The earliest first, token extremes after the others; those that don't part last."""
    left_out: tuple[str, ...]
    """What can't be held against each other, and why."""
    facts: tuple[tuple[str, str, str], ...]
    """(name, A, B) of what was set differently."""

    @property
    def is_seed_alone(self) -> bool:
        """Whether the seed is all that was set differently, as far as the logs tell."""
        return {name for name, _, _ in self.facts} == {"seed"}

    @property
    def is_apart(self) -> bool:
        """Whether they stay apart to the end by more than anything within a run: what ``--fail-on`` asks."""
        return not self.is_seed_alone and any(one.is_lasting for one in self.partings)

    @property
    def first(self) -> Parting | None:
        """Where they part first: by what came of it, or by what was set where nothing else parts."""
        parted = [one for one in self.partings if one.step is not None]
        came = [one for one in parted if one.quantity not in _SETTINGS]
        return next(iter(came or parted), None)

    def headline(self) -> str:
        """The verdict in a sentence."""
        if not self.common:
            return "The runs have no step in common."
        if self.differs_at is None:
            return f"The runs are the same in every number of their {counted(self.common, 'common step')}."
        step, quantity = self.differs_at
        start = f"First different number: {QUANTITY_WORDS[quantity]} at step {step}"
        first = self.first
        if first is None:
            return (
                f"{start}; beyond noise they don't part in {counted(self.common, 'common step')}."
            )
        unit = f" {first.unit}" if first.unit else ""
        return (
            f"{start}. They part beyond the noise within a run at step {first.step} first, by "
            f"{QUANTITY_WORDS[first.quantity]}: {shown(first.a)} against {shown(first.b)}{unit}. {self._reach()}"
        )

    def _reach(self) -> str:
        """What follows from a parting, and what does not."""
        if self.is_seed_alone:
            return f"Only the seed was set differently, so this is a note and no fault. {SEEDS}"
        lasting = [QUANTITY_WORDS[one.quantity] for one in self.partings if one.is_lasting]
        if not lasting:
            return f"It does not last, or is not large against the scatter of the run. {SEEDS}"
        reach = f"To the end, and by far more than the scatter of the run: {', '.join(lasting)}."
        is_set = all(one.quantity in _SETTINGS for one in self.partings if one.is_lasting)
        return (
            f"{reach} That is what was set, not what came of it." if is_set else f"{reach} {SEEDS}"
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
            "is_apart": self.is_apart,
            "is_seed_alone": self.is_seed_alone,
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
        parting(quantity, _unit(a, quantity), listed, len(watched))
        for quantity, listed in watched.items()
    ]
    return Comparison(
        a=a.path,
        b=b.path,
        common=len(set(a.curve.steps) & set(b.curve.steps)),
        differs_at=min(different, default=None, key=lambda pair: pair[0]),
        partings=tuple(sorted(partings, key=_place)),
        left_out=tuple(left_out),
        facts=_facts(a, b),
    )


def _place(one: Parting) -> tuple[bool, bool, int]:
    return one.step is None, one.quantity in _EXTREMES, one.step or 0


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


def _facts(a: RunLog, b: RunLog) -> tuple[tuple[str, str, str], ...]:
    names = sorted({*a.facts, *b.facts} - {ENDED_BY})
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
