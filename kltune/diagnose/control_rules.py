"""A run's log in, what its KL controller does out: beta that can't move, or that has no room left. Pure."""

from __future__ import annotations

from kltune.diagnose.result import Sign
from kltune.diagnose.rule import Rule
from kltune.diagnose.runlog import RunLog
from kltune.diagnose.series import Pairs, last_part, level, shown
from kltune.grade import Grade
from kltune.symptoms.curve import Quantity

_MOVED = 0.1
"""Share by which beta must change over a run to count as controlled (kltune's own measure of *inert*)."""
_OFF = 0.5
"""Share by which the KL may lie off its target."""
_LEAST = 8
"""Steps below which a controller had no time."""


def inert(run: RunLog) -> Sign | None:
    """The KL is off its target and beta stands still."""
    beta, target, kl = _read(run)
    if len(beta) < _LEAST or not target or not kl:
        return None
    low, high = min(b for _, b in beta), max(b for _, b in beta)
    off = level(last_part(kl, share=0.5)) / level(target) - 1
    if low <= 0 or high / low - 1 > _MOVED or abs(off) <= _OFF:
        return None
    detail = (
        f"beta stays between {shown(low)} and {shown(high)} over steps {beta[0][0]}-{beta[-1][0]} while the KL is "
        f"{shown(abs(off) * 100)} % {'above' if off > 0 else 'below'} its target {shown(level(target))} {_unit(run)}"
    )
    numbers = {"beta_low": low, "beta_high": high, "kl_off_target": off}
    return Sign("controller_inert", Grade.WARN, beta[0][0], beta[-1][0], detail, numbers)


def saturated(run: RunLog) -> Sign | None:
    """Beta sits at its bound with the KL on the far side of the target."""
    beta, target, kl = _read(run)
    if len(beta) < _LEAST or not target or not kl:
        return None
    low, high = min(b for _, b in beta), max(b for _, b in beta)
    late = last_part(beta)
    stuck = {value for _, value in late}
    if len(stuck) != 1 or low <= 0 or high / low - 1 <= _MOVED:
        return None
    (bound,) = stuck
    off = level(last_part(kl)) / level(target) - 1
    wants_more = off > _OFF and bound == high
    wants_less = off < -_OFF and bound == low
    if not (wants_more or wants_less):
        return None
    first = next(step for step, value in beta if value == bound)
    detail = (
        f"beta rests at {shown(bound)}, the {'largest' if wants_more else 'smallest'} it ever was, from step {first} on "
        f"while the KL is {shown(abs(off) * 100)} % {'above' if off > 0 else 'below'} its target "
        f"{shown(level(target))} {_unit(run)}"
    )
    numbers = {"beta": bound, "kl_off_target": off}
    cause = "upper_bound" if wants_more else "lower_bound"
    return Sign("controller_saturated", Grade.WARN, first, late[-1][0], detail, numbers, cause)


def _read(run: RunLog) -> tuple[Pairs, Pairs, Pairs]:
    """Beta, target and the KL in the target's unit."""
    in_sequence = "sequence" in _unit(run)
    kl = Quantity.KL_SEQ if in_sequence else Quantity.KL_TOKEN
    known = run.curve.known
    target = [pair for pair in known(Quantity.TARGET) if pair[1] > 0]
    return known(Quantity.BETA), target, known(kl)


def _unit(run: RunLog) -> str:
    reading = run.readings.get(Quantity.TARGET)
    return reading.unit if reading is not None and reading.unit else "nats/token"


_NEEDS = ((Quantity.BETA,), (Quantity.TARGET,), (Quantity.KL_TOKEN, Quantity.KL_SEQ))

RULES: tuple[Rule, ...] = (
    Rule("the controller moves beta", inert, _NEEDS, is_optional=True, least=_LEAST),
    Rule("the controller has room", saturated, _NEEDS, is_optional=True, least=_LEAST),
)
