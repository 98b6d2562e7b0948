"""A run's log in, whether nothing is learned out, with the cause as far as the log rules the others out. Pure."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from kltune.diagnose.along import along, from_start, only
from kltune.diagnose.fall_rules import falls
from kltune.diagnose.kl_rules import kl_of
from kltune.diagnose.price import coefficient, is_paid_in_reward
from kltune.diagnose.result import Sign
from kltune.diagnose.rule import QUANTITY_WORDS, Rule
from kltune.diagnose.runlog import RunLog
from kltune.diagnose.series import Pairs, first_part, last_part, level, shown, steps_text
from kltune.grade import Grade
from kltune.symptoms import stalled as causes
from kltune.symptoms.curve import Curve, Quantity
from kltune.symptoms.stalled import stalled

LEARNS = "the run does not stand still"
"""The check without which a run is not called healthy, where the log has what it takes."""
_BY_EXCLUSION = "learning_rate_too_low"
"""The stalled rule's cause where it found no other."""
_SHORT, _SHORT_GROWING = 40, 50
"""Logged steps below which a flat reward only warns; and, while the KL still grows, says nothing."""
_STILL_GROWS = 2.0


def _stalled(run: RunLog) -> Sign | None:
    """Nothing is learned: the reward stays flat, or falls, at a KL near 0."""
    fall = falls(run)
    if fall is not None and fall.name == "reward_falls_at_reference":
        return fall  # what falls is not flat
    sign = _flat(run)
    if sign is None or sign.cause != _BY_EXCLUSION:
        return sign
    count = len(_kl_pairs(run))
    is_growing = _growth(run) is not None
    if is_growing and count < _SHORT_GROWING:
        return None
    if is_growing or count < _SHORT:
        sign = replace(sign, grade=Grade.WARN)
    return _only_what_is_known(run, sign)


def _flat(run: RunLog) -> Sign | None:
    curve = only(run.curve, _STALLED)
    found = coefficient(run)
    if found is not None and not curve.has(Quantity.BETA):
        curve = _with_constant(curve, Quantity.BETA, found.value)
    rate = curve.known(Quantity.LEARNING_RATE)
    if rate:  # the last of a schedule that decays to 0 says nothing of the run
        curve = _with_constant(curve, Quantity.LEARNING_RATE, level(rate))
    ask = partial(stalled, beta_in_reward=is_paid_in_reward(run))
    sign = along(curve, ask, from_start, Grade.FAIL)
    if sign is None or (sign.grade is Grade.WARN and not _is_most(sign, curve)):
        return None  # a slow start that it came out of
    if found is None or not found.how or sign.cause != "beta_too_large":
        return sign
    return replace(sign, detail=f"{sign.detail} (beta {found.how})")


def _with_constant(curve: Curve, quantity: Quantity, value: float) -> Curve:
    return Curve(curve.steps, {**curve.values, quantity: (value,) * len(curve.steps)})


def _only_what_is_known(run: RunLog, sign: Sign) -> Sign:
    """The sign with the cause that is left over, only where the log rules the others out."""
    lacking = [] if coefficient(run) is not None else [QUANTITY_WORDS[Quantity.BETA]]
    if not any(run.curve.has(one) for one in _SPREAD):
        lacking.append(QUANTITY_WORDS[Quantity.PROXY_STD])
    if not lacking:
        return sign
    head = sign.detail.partition(f"; {causes.RATE_TOO_SMALL}: ")[0]
    rate = run.curve.known(Quantity.LEARNING_RATE)
    told = f"; median learning rate {shown(level(rate))}" if rate else ""
    detail = (
        f"{head} (seen in {steps_text(sign.first_step, sign.last_step)}); by what can't be told: the log holds no "
        f"{' and no '.join(lacking)}{told}"
    )
    return replace(sign, detail=detail, cause="")


def _kl_pairs(run: RunLog) -> Pairs:
    found = kl_of(run)
    return found[1] if found else ()


def _growth(run: RunLog) -> tuple[float, float] | None:
    """The KL's level in the first and in the last third, where it still grows."""
    pairs = _kl_pairs(run)
    before, now = level(first_part(pairs, share=1 / 3)), level(last_part(pairs, share=1 / 3))
    return (before, now) if now > _STILL_GROWS * max(before, 0.0) else None


def _lacks_end(run: RunLog) -> str:
    """What keeps a run that is flat so far from being judged."""
    growth = _growth(run)
    if growth is None or _flat(run) is None:
        return ""
    pairs = _kl_pairs(run)
    unit = "nats/token" if run.curve.has(Quantity.KL_TOKEN) else "nats/sequence"
    return (
        f"settled KL (the reward is flat so far and the KL still grows, from {shown(growth[0])} to {shown(growth[1])} "
        f"{unit} in {len(pairs)} logged steps)"
    )


def _is_most(sign: Sign, curve: Curve) -> bool:
    """Whether a sign was seen over more than half of the run."""
    return sign.last_step - sign.first_step > (curve.steps[-1] - curve.steps[0]) / 2


_KL = (Quantity.KL_TOKEN, Quantity.KL_SEQ)
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

RULES: tuple[Rule, ...] = (
    Rule(
        LEARNS,
        _stalled,
        (_KL, (Quantity.PROXY,)),
        least=20,
        lacks_after=_lacks_end,
    ),
)
