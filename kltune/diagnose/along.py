"""A curve and a guard's rule in, what the rule saw at any of the curve's steps out, as one sign. Pure.

The rules (kltune.symptoms) judge a curve at its last step; here they are asked along the whole run, so that a
finding tells where it began and whether it is still there at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from kltune.diagnose.result import Sign
from kltune.diagnose.series import steps_text
from kltune.grade import Grade
from kltune.symptoms import stalled as causes
from kltune.symptoms.curve import Curve, Quantity
from kltune.symptoms.symptom import Symptom, SymptomKind

_LOOKS = 40
"""Steps at most at which a rule that compares with the start is asked; the last one always."""
_SPAN = 12
"""Logged steps that a rule without memory looks back on at most."""

CAUSES: Mapping[str, str] = MappingProxyType(
    {
        causes.BETA_TOO_LARGE: "beta_too_large",
        causes.NO_SPREAD: "no_group_spread",
        causes.ZERO_ADVANTAGES: "zero_advantages",
        causes.RATE_TOO_SMALL: "learning_rate_too_low",
    }
)
"""The stalled rule's words for a cause, and the cause's name here."""
NAMES: Mapping[SymptomKind, str] = MappingProxyType({SymptomKind.STALLED: "kl_stalled"})
"""Where a sign's name is not its symptom's."""

Ask = Callable[[Curve], Symptom | None]
Cuts = Callable[[Curve], Iterator[Curve]]


def along(curve: Curve, ask: Ask, cuts: Cuts, grade: Grade) -> Sign | None:
    """Ask at many steps; the first and the last that fires, as one sign."""
    spans = list(cuts(curve))
    found = [symptom for symptom in map(ask, spans) if symptom is not None]
    if not found:
        return None
    last = found[-1]
    at_end = last.last_step == spans[-1].steps[-1] and ask(spans[-1]) is not None
    detail = last.detail
    first_step = found[0].first_step
    if not at_end:
        detail += "; not at the end any more"
    if first_step < last.first_step:
        detail += f" (seen in {steps_text(first_step, last.last_step)})"
    if not at_end and grade is Grade.FAIL:
        grade = Grade.WARN
    name = NAMES.get(last.kind, last.kind.value)
    cause = CAUSES.get(last.cause, last.cause)
    return Sign(name, grade, first_step, last.last_step, detail, last.numbers, cause)


def only(curve: Curve, quantities: Sequence[Quantity]) -> Curve:
    """The curve of these quantities, at the steps that have one of them."""
    kept = {q: curve.values[q] for q in quantities if q in curve.values}
    # NaN is the only number that differs from itself.
    places = [i for i in range(len(curve.steps)) if any(v[i] == v[i] for v in kept.values())]
    steps = tuple(curve.steps[i] for i in places)
    return Curve(steps, {q: tuple(v[i] for i in places) for q, v in kept.items()})


def from_start(curve: Curve) -> Iterator[Curve]:
    """The run as it was known after each of some steps."""
    count = len(curve.steps)
    ends = sorted({round(count * (i + 1) / _LOOKS) for i in range(_LOOKS)} - {0})
    for end in ends:
        yield _cut(curve, 0, end)


def recent(curve: Curve) -> Iterator[Curve]:
    """The last steps as they were known after every step."""
    for end in range(1, len(curve.steps) + 1):
        yield _cut(curve, max(0, end - _SPAN), end)


def _cut(curve: Curve, start: int, end: int) -> Curve:
    return Curve(curve.steps[start:end], {q: v[start:end] for q, v in curve.values.items()})
