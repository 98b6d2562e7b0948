"""A run's log in, what the guards' rules (kltune.symptoms) saw at any of its steps out. Pure.

The rules judge a curve at its last step; here they are asked along the whole run, so that a finding tells
where it began and whether it is still there at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from kltune.diagnose.price import coefficient, is_paid_in_reward
from kltune.diagnose.result import Sign
from kltune.diagnose.rule import Rule
from kltune.diagnose.runlog import RunLog
from kltune.diagnose.series import steps_text
from kltune.grade import Grade
from kltune.symptoms import stalled as causes
from kltune.symptoms.curve import Curve, Quantity
from kltune.symptoms.kl import kl_jump, kl_over_limit, negative_kl
from kltune.symptoms.local import local_kl
from kltune.symptoms.proxy import proxy_spread
from kltune.symptoms.scale import pseudo_explosion
from kltune.symptoms.stalled import stalled
from kltune.symptoms.symptom import Symptom, SymptomKind
from kltune.symptoms.text import entropy_collapse, length_change, repetition, truncation

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


def _stalled(run: RunLog) -> Sign | None:
    curve = _only(run.curve, _STALLED)
    found = coefficient(run)
    if found is not None and not curve.has(Quantity.BETA):
        constant = (found.value,) * len(curve.steps)
        curve = Curve(curve.steps, {**curve.values, Quantity.BETA: constant})
    ask = partial(stalled, beta_in_reward=is_paid_in_reward(run))
    sign = _along(curve, ask, _from_start, Grade.FAIL)
    if sign is None or (sign.grade is Grade.WARN and not _is_most(sign, curve)):
        return None  # a slow start that it came out of
    if found is None or not found.how or sign.cause != "beta_too_large":
        return sign
    detail = f"{sign.detail} (beta {found.how})"
    return Sign(
        sign.name, sign.grade, sign.first_step, sign.last_step, detail, sign.numbers, sign.cause
    )


def _is_most(sign: Sign, curve: Curve) -> bool:
    """Whether a sign was seen over more than half of the run."""
    return sign.last_step - sign.first_step > (curve.steps[-1] - curve.steps[0]) / 2


def _negative(run: RunLog) -> Sign | None:
    curve = run.curve
    reading = run.readings.get(Quantity.KL_TOKEN)
    if reading is not None and reading.estimator == "k1" and not curve.has(Quantity.K1_TOKEN):
        k1 = curve.values[Quantity.KL_TOKEN]
        curve = Curve(curve.steps, {**curve.values, Quantity.K1_TOKEN: k1})
    return _along(_only(curve, _K1), negative_kl, _recent, Grade.FAIL)


def _limit(run: RunLog) -> Sign | None:
    limit = run.facts["kl_limit"]
    in_sequence = "sequence" in str(run.facts.get("kl_unit", ""))
    quantity = Quantity.KL_SEQ if in_sequence else Quantity.KL_TOKEN
    ask = partial(kl_over_limit, limit=float(limit), quantity=quantity)
    return _along(_only(run.curve, (quantity,)), ask, _recent, Grade.WARN)


def _lacks_limit(run: RunLog) -> str:
    return "" if isinstance(run.facts.get("kl_limit"), int | float) else "a KL limit"


def _lacks_k1(run: RunLog) -> str:
    reading = run.readings.get(Quantity.KL_TOKEN)
    is_k1 = reading is not None and reading.estimator == "k1"
    has = any(run.curve.has(one) for one in (Quantity.K1_TOKEN, Quantity.K1_SEQ))
    return "" if is_k1 or has else "k1 (signed log-ratio; k2 and k3 can't be negative)"


def _asking(
    ask: Ask, quantities: Sequence[Quantity], cuts: Cuts, grade: Grade
) -> Callable[[RunLog], Sign | None]:
    return lambda run: _along(_only(run.curve, quantities), ask, cuts, grade)


def _along(curve: Curve, ask: Ask, cuts: Cuts, grade: Grade) -> Sign | None:
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


def _only(curve: Curve, quantities: Sequence[Quantity]) -> Curve:
    """The curve of these quantities, at the steps that have one of them."""
    kept = {q: curve.values[q] for q in quantities if q in curve.values}
    # NaN is the only number that differs from itself.
    places = [i for i in range(len(curve.steps)) if any(v[i] == v[i] for v in kept.values())]
    steps = tuple(curve.steps[i] for i in places)
    return Curve(steps, {q: tuple(v[i] for i in places) for q, v in kept.items()})


def _from_start(curve: Curve) -> Iterator[Curve]:
    """The run as it was known after each of some steps."""
    count = len(curve.steps)
    ends = sorted({round(count * (i + 1) / _LOOKS) for i in range(_LOOKS)} - {0})
    for end in ends:
        yield _cut(curve, 0, end)


def _recent(curve: Curve) -> Iterator[Curve]:
    """The last steps as they were known after every step."""
    for end in range(1, len(curve.steps) + 1):
        yield _cut(curve, max(0, end - _SPAN), end)


def _cut(curve: Curve, start: int, end: int) -> Curve:
    return Curve(curve.steps[start:end], {q: v[start:end] for q, v in curve.values.items()})


_KL = (Quantity.KL_TOKEN, Quantity.KL_SEQ)
_K1 = (Quantity.K1_TOKEN, Quantity.K1_SEQ, Quantity.K1_SEQ_SE)
_SPREAD = (Quantity.ZERO_GROUPS, Quantity.PROXY_STD)
_STALLED = (
    *_KL,
    *_SPREAD,
    Quantity.LENGTH,
    Quantity.PROXY,
    Quantity.ADVANTAGE_STD,
    Quantity.BETA,
    Quantity.LEARNING_RATE,
)
_SCALE = (Quantity.ADVANTAGE_STD, Quantity.KL_TOKEN)
_LOCAL = (Quantity.KL_TOKEN, Quantity.KL_P99_TOKEN)

RULES: tuple[Rule, ...] = (
    Rule("something is learned", _stalled, (_KL, (Quantity.PROXY,))),
    Rule(
        "the KL does not jump",
        _asking(kl_jump, (Quantity.KL_TOKEN,), _recent, Grade.FAIL),
        ((Quantity.KL_TOKEN,),),
    ),
    Rule("the KL stays below its limit", _limit, (_KL,), _lacks_limit, is_optional=True),
    Rule("the mean log-ratio is not negative", _negative, (), _lacks_k1),
    Rule(
        "advantages keep their scale",
        _asking(pseudo_explosion, _SCALE, _from_start, Grade.WARN),
        tuple((one,) for one in _SCALE),
    ),
    Rule(
        "rewards differ within groups",
        _asking(proxy_spread, _SPREAD, _from_start, Grade.WARN),
        (_SPREAD,),
    ),
    Rule(
        "the entropy holds",
        _asking(entropy_collapse, (Quantity.ENTROPY,), _from_start, Grade.WARN),
        ((Quantity.ENTROPY,),),
    ),
    Rule(
        "the length holds",
        _asking(length_change, (Quantity.LENGTH,), _from_start, Grade.WARN),
        ((Quantity.LENGTH,),),
    ),
    Rule(
        "completions end by themselves",
        _asking(truncation, (Quantity.TRUNCATED,), _from_start, Grade.WARN),
        ((Quantity.TRUNCATED,),),
    ),
    Rule(
        "completions do not repeat themselves",
        _asking(repetition, (Quantity.REPEATED,), _from_start, Grade.WARN),
        ((Quantity.REPEATED,),),
    ),
    Rule(
        "the KL lies all over the tokens",
        _asking(partial(local_kl, profiles={}), _LOCAL, _from_start, Grade.WARN),
        tuple((one,) for one in _LOCAL),
    ),
)
