"""A run's log in, what the guards' rules (kltune.symptoms) saw at any of its steps out. Pure.

The rules judge a curve at its last step; here they are asked along the whole run, so that a finding tells
where it began and whether it is still there at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from kltune.diagnose import stall_rules
from kltune.diagnose.along import Ask, Cuts, along, from_start, only, recent
from kltune.diagnose.negative import k1_of, negative_over_run
from kltune.diagnose.result import Sign
from kltune.diagnose.rule import Rule
from kltune.diagnose.runlog import RunLog
from kltune.diagnose.series import (
    first_part,
    last_part,
    level,
    noise,
    shown,
    steps_text,
    values,
)
from kltune.grade import Grade
from kltune.symptoms.curve import Curve, Quantity
from kltune.symptoms.kl import kl_jump, kl_over_limit, negative_kl
from kltune.symptoms.local import local_kl
from kltune.symptoms.proxy import proxy_spread
from kltune.symptoms.scale import pseudo_explosion
from kltune.symptoms.text import entropy_collapse, length_change, repetition, truncation

_MOST_CUT = 0.5
_NO_ENTROPY = 0.01
"""Nats per token: about one choice in a thousand tokens."""


def _negative(run: RunLog) -> Sign | None:
    over_run = negative_over_run(run)
    if over_run is not None:
        return over_run
    curve = run.curve
    found = k1_of(run)
    if found is not None and not curve.has(found[0]):
        kl = Quantity.KL_TOKEN if found[0] is Quantity.K1_TOKEN else Quantity.KL_SEQ
        curve = Curve(curve.steps, {**curve.values, found[0]: curve.values[kl]})
    return along(only(curve, _K1), negative_kl, recent, Grade.FAIL)


def _spread(run: RunLog) -> Sign | None:
    """The spread that vanished; whether the reward had risen tells solved from never learned."""
    sign = along(only(run.curve, _SPREAD), proxy_spread, from_start, Grade.WARN)
    proxy = run.curve.known(Quantity.PROXY)
    if sign is None or not proxy:
        return sign
    at = [pair for pair in proxy if sign.first_step <= pair[0] <= sign.last_step] or proxy
    start = first_part(proxy)
    spreads = run.curve.known(Quantity.PROXY_STD)
    limit = max(2 * noise(values(proxy)), level(first_part(spreads)) / 2 if spreads else 0.0)
    has_risen = level(last_part(at)) - level(start) > limit
    is_there = sign.last_step == run.curve.steps[-1] or sign.last_step >= proxy[-1][0]
    return replace(sign, cause="reward_solved" if has_risen and is_there else "no_group_spread")


def _truncation(run: RunLog) -> Sign | None:
    """A share of cut completions that rose, or that was high all along."""
    sign = along(only(run.curve, (Quantity.TRUNCATED,)), truncation, from_start, Grade.WARN)
    late = last_part(run.curve.known(Quantity.TRUNCATED), share=0.5)
    if sign is not None or level(late) < _MOST_CUT:
        return sign
    first, last = late[0][0], late[-1][0]
    detail = (
        f"{level(late):.0%} of the completions are cut at the length limit in steps {first}-{last}, "
        f"{level(first_part(run.curve.known(Quantity.TRUNCATED))):.0%} in the first ones: what they would have said "
        "is not judged"
    )
    return Sign("truncation", Grade.WARN, first, last, detail, {"truncated": level(late)})


def _entropy(run: RunLog) -> Sign | None:
    """An entropy that collapsed, or that was never there."""
    pairs = run.curve.known(Quantity.ENTROPY)
    sign = along(only(run.curve, (Quantity.ENTROPY,)), entropy_collapse, from_start, Grade.WARN)
    if sign is not None or level(first_part(pairs)) >= _NO_ENTROPY or level(pairs) >= _NO_ENTROPY:
        return sign
    first, last = pairs[0][0], pairs[-1][0]
    detail = (
        f"entropy {shown(level(first_part(pairs)))} nats/token at the start and {shown(level(pairs))} over "
        f"{steps_text(first, last)}: the policy always says the same"
    )
    return Sign("entropy_low", Grade.WARN, first, last, detail, {"entropy": level(pairs)})


def _limit(run: RunLog) -> Sign | None:
    limit = run.facts["kl_limit"]
    in_sequence = "sequence" in str(run.facts.get("kl_unit", ""))
    quantity = Quantity.KL_SEQ if in_sequence else Quantity.KL_TOKEN
    ask = partial(kl_over_limit, limit=float(limit), quantity=quantity)
    return along(only(run.curve, (quantity,)), ask, recent, Grade.WARN)


def _lacks_limit(run: RunLog) -> str:
    return "" if isinstance(run.facts.get("kl_limit"), int | float) else "a KL limit"


def _lacks_k1(run: RunLog) -> str:
    return "" if k1_of(run) else "k1 (signed log-ratio; k2 and k3 can't be negative)"


def _asking(
    ask: Ask, quantities: Sequence[Quantity], cuts: Cuts, grade: Grade
) -> Callable[[RunLog], Sign | None]:
    return lambda run: along(only(run.curve, quantities), ask, cuts, grade)


_KL = (Quantity.KL_TOKEN, Quantity.KL_SEQ)
_K1 = (Quantity.K1_TOKEN, Quantity.K1_SEQ, Quantity.K1_SEQ_SE)
_SPREAD = (Quantity.ZERO_GROUPS, Quantity.PROXY_STD)
_SCALE = (Quantity.ADVANTAGE_STD, Quantity.KL_TOKEN)
_LOCAL = (Quantity.KL_TOKEN, Quantity.KL_P99_TOKEN)

RULES: tuple[Rule, ...] = (
    *stall_rules.RULES,
    Rule(
        "the KL does not jump",
        _asking(kl_jump, (Quantity.KL_TOKEN,), recent, Grade.FAIL),
        ((Quantity.KL_TOKEN,),),
        least=8,
    ),
    Rule("the KL stays below its limit", _limit, (_KL,), _lacks_limit, is_optional=True, least=3),
    Rule("the mean log-ratio is not negative", _negative, (), _lacks_k1, least=8),
    Rule(
        "advantages keep their scale",
        _asking(pseudo_explosion, _SCALE, from_start, Grade.WARN),
        tuple((one,) for one in _SCALE),
        least=10,
    ),
    Rule("rewards differ within groups", _spread, (_SPREAD,), least=10),
    Rule("the entropy holds", _entropy, ((Quantity.ENTROPY,),), least=10),
    Rule(
        "the length holds",
        _asking(length_change, (Quantity.LENGTH,), from_start, Grade.WARN),
        ((Quantity.LENGTH,),),
        least=10,
    ),
    Rule("completions end by themselves", _truncation, ((Quantity.TRUNCATED,),), least=10),
    Rule(
        "completions do not repeat themselves",
        _asking(repetition, (Quantity.REPEATED,), from_start, Grade.WARN),
        ((Quantity.REPEATED,),),
        least=10,
    ),
    Rule(
        "the KL lies all over the tokens",
        _asking(partial(local_kl, profiles={}), _LOCAL, from_start, Grade.WARN),
        tuple((one,) for one in _LOCAL),
        least=8,
    ),
)
