"""A run's log in, what its KL says out: signs of an exploded, impossible, missing or untrue KL. Pure.

Scales (kl-reference: published recipes sit at 1e-3 to 0.05 nats per token and 1 to 40 per sequence):
a mean above 1 nat per token is far gone, whatever the task.
"""

from __future__ import annotations

import math
from types import MappingProxyType

from kltune.diagnose.result import Sign
from kltune.diagnose.rule import QUANTITY_WORDS, Rule
from kltune.diagnose.runlog import RunLog
from kltune.diagnose.series import Pairs, first_part, last_part, level, shown, values
from kltune.diagnose.unread import unread_kl
from kltune.grade import Grade
from kltune.symptoms.curve import Quantity

GONE = MappingProxyType({Quantity.KL_TOKEN: 1.0, Quantity.KL_SEQ: 150.0})
"""Nats beyond which a policy is far gone; per sequence only where the length is not known."""
_START = {Quantity.KL_TOKEN: 0.05, Quantity.KL_SEQ: 5.0}
"""Nats at step 0 or 1: rounding in bf16 gives 1e-4 per token, an engine mismatch 1e-2."""
_PATIENCE = 3
"""Logged steps in a row, as the KL guard asks; at the end of a log two are enough."""
_SOON = 10
"""Steps within which only too large a learning rate moves a policy this far."""
_SAMPLER_WARN, _SAMPLER_FAIL = 1e-3, 0.1
"""Nats per token; NeMo-RL calls a mismatch below 1e-3 healthy."""
_UPDATE = 0.1
"""Nats per token within an update; PPO's early stops are set at 0.01 to 0.02."""
_BELOW_ZERO = -1e-6
"""What rounding may make of a value that can't be negative."""
_NEVER_BELOW_0 = frozenset({"k2", "k3", "exact"})
_LEAST = 8
"""Logged steps below which a rule that looks at a course can't pass."""
_SPREADS_GAINED, _SHARE_OF_NEEDED, _LITTLE_SEQ = 1.0, 0.1, 0.5

_KL = (Quantity.KL_TOKEN, Quantity.KL_SEQ)
_UNIT = {Quantity.KL_TOKEN: "nats/token", Quantity.KL_SEQ: "nats/sequence"}


def kl_of(run: RunLog) -> tuple[Quantity, Pairs] | None:
    """The run's KL per token; per sequence where only that is known."""
    for quantity in _KL:
        pairs = run.curve.known(quantity)
        if pairs:
            return quantity, pairs
    return None


def both_units(run: RunLog, step: int) -> str:
    """The KL at a step in every unit that is known: ``0.05 nats/token (2 nats/sequence)``."""
    known = [(q, dict(run.curve.known(q)).get(step)) for q in _KL]
    texts = [f"{shown(value)} {_UNIT[q]}" for q, value in known if value is not None]
    return texts[0] + (f" ({texts[1]})" if len(texts) > 1 else "") if texts else "not known"


def exploded(run: RunLog) -> Sign | None:
    """The KL ends far from where any tuned run lies."""
    found = kl_of(run)
    if found is None:
        return None
    quantity, pairs = found
    gone = GONE[quantity]
    over = _over(pairs, gone)
    if not over or over[0] <= 1:  # a policy that starts so far off has not exploded
        return None
    at_end = level(last_part(pairs)) > gone or over[-1] == pairs[-1][0]
    top = max(pairs, key=lambda pair: pair[1])
    detail = (
        f"KL above {shown(gone)} {_UNIT[quantity]} first at step {over[0]}, at most {both_units(run, top[0])} "
        f"at step {top[0]}, {both_units(run, pairs[-1][0])} at the end (step {pairs[-1][0]})"
    )
    unit = "kl_token" if quantity is Quantity.KL_TOKEN else "kl_seq"
    numbers = {"first_step": float(over[0]), f"top_{unit}": top[1], f"end_{unit}": pairs[-1][1]}
    cause, why = _why_exploded(run, pairs, over[0])
    if not at_end:
        return Sign("kl_spike", Grade.WARN, over[0], over[-1], f"{detail}; it came back", numbers)
    return Sign("kl_explosion", Grade.FAIL, over[0], over[-1], detail + why, numbers, cause)


def _over(pairs: Pairs, gone: float) -> list[int]:
    """Steps beyond ``gone`` from the first of several in a row on; a spike of less is none (unless the log ends in it)."""
    above = [value > gone for _, value in pairs]
    if not any(all(above[i : i + _PATIENCE]) for i in range(max(1, len(above) - 1))):
        return []
    first = next(i for i in range(len(above)) if all(above[i : i + _PATIENCE]))
    return [
        step for (step, _), is_above in zip(pairs[first:], above[first:], strict=True) if is_above
    ]


def _why_exploded(run: RunLog, pairs: Pairs, first: int) -> tuple[str, str]:
    """Which cause the numbers speak for, and by what."""
    start = pairs[0][0]
    if first == start:
        return "", f"; it was there at step {first}, the first one in the log"
    if first - start <= _SOON:
        rate = run.curve.known(Quantity.LEARNING_RATE)
        told = f"; learning rate up to {shown(max(values(rate)))}" if rate else ""
        return "learning_rate_too_high", f", {first - start} step(s) after the first{told}"
    proxy = run.curve.known(Quantity.PROXY)
    if proxy and level(last_part(proxy)) > level(first_part(proxy)):
        return "beta_too_small", "; it grew while the reward rose"
    return "", ""


def far_at_start(run: RunLog) -> Sign | None:
    """The first step already lies away from the reference: not learned, but set up so."""
    found = kl_of(run)
    if found is None:
        return None
    quantity, pairs = found
    step, value = pairs[0]
    limit = _START[quantity]
    if step > 1 or value <= limit:
        return None
    detail = (
        f"KL {both_units(run, step)} at step {step}; a policy that starts from its reference has 0"
    )
    numbers = {quantity.value: value, "limit": limit}
    return Sign("start_kl", Grade.FAIL, step, step, detail, numbers)


def impossible(run: RunLog) -> Sign | None:
    """An estimator that can't be negative is."""
    for quantity in _KL:
        reading = run.readings.get(quantity)
        if reading is None or reading.estimator not in _NEVER_BELOW_0:
            continue
        below = [pair for pair in run.curve.known(quantity) if pair[1] < _BELOW_ZERO]
        if below:
            least = min(below, key=lambda pair: pair[1])
            detail = (
                f"{reading.name} is {reading.estimator}, which is never below 0, and {shown(least[1])} "
                f"{_UNIT[quantity]} at step {least[0]} ({len(below)} steps below 0)"
            )
            numbers = {"least": least[1], "steps": len(below)}
            return Sign("impossible_kl", Grade.FAIL, below[0][0], below[-1][0], detail, numbers)
    return None


def missing(run: RunLog) -> Sign | None:
    """No reference KL in the log; a KL of one update is none."""
    if any(run.curve.has(one) for one in (*_KL, Quantity.K1_TOKEN, Quantity.K1_SEQ)):
        return None
    if run.unread_kl:
        return unread_kl(run)
    steps = run.curve.steps
    beta = run.facts.get("beta")
    texts = ["the log holds no KL to the reference, so how far the policy went can't be told"]
    cause = ""
    if beta == 0.0:
        texts.append("beta is 0")
        cause = "beta_zero"
    elif beta is None and run.framework == "trl":
        texts.append("TRL logs `kl` only where beta is not 0, so beta was 0 here")
        cause = "beta_zero"
    elif beta is None:
        texts.append("none is logged where beta is 0; it must not be read as a KL of 0")
    if run.curve.has(Quantity.UPDATE_KL_TOKEN):
        name = run.readings[Quantity.UPDATE_KL_TOKEN].name
        texts.append(
            f"{name} is the KL of one update (policy at rollout to policy now), not this one"
        )
        cause = cause or "update_kl_only"
    span = (steps[0], steps[-1]) if steps else (0, 0)
    return Sign("reference_kl_missing", Grade.WARN, *span, "; ".join(texts), {}, cause)


def sampler_apart(run: RunLog) -> Sign | None:
    """Generator and trainer give the same weights other log-probs."""
    pairs = run.curve.known(Quantity.SAMPLER_KL_TOKEN)
    middle = level([(step, abs(value)) for step, value in last_part(pairs, share=0.5)])
    if middle <= _SAMPLER_WARN:
        return None
    over = [step for step, value in pairs if abs(value) > _SAMPLER_WARN]
    detail = (
        f"KL between sampler and trainer {shown(middle)} nats/token in the second half "
        f"(healthy: below {shown(_SAMPLER_WARN)})"
    )
    grade = Grade.FAIL if middle > _SAMPLER_FAIL else Grade.WARN
    numbers = {"sampler_kl_token": middle, "limit": _SAMPLER_WARN}
    return Sign("sampler_mismatch", grade, over[0], over[-1], detail, numbers)


def large_updates(run: RunLog) -> Sign | None:
    """Single updates move the policy further than PPO's clipping is made for."""
    pairs = run.curve.known(Quantity.UPDATE_KL_TOKEN)
    late = last_part(pairs, share=0.5)
    middle = level([(step, abs(value)) for step, value in late])
    if middle <= _UPDATE:
        return None
    detail = (
        f"an update moves the policy by {shown(middle)} nats/token in steps {late[0][0]}-{late[-1][0]} (usual: 0.001 to "
        "0.02); this is no distance to the reference"
    )
    numbers = {"update_kl_token": middle, "limit": _UPDATE}
    return Sign("large_updates", Grade.WARN, late[0][0], late[-1][0], detail, numbers)


def too_small_to_be_true(run: RunLog) -> Sign | None:
    """A reward gain that no policy this near to its reference can have.

    A mean moves by at most spread x sqrt(2 KL) (rewards with the tails of a normal distribution); a tenth
    of the KL that this asks for leaves room for other tails, and rare successes need up to 0.5 nats.
    """
    proxy, spreads = run.curve.known(Quantity.PROXY), run.curve.known(Quantity.PROXY_STD)
    kl = run.curve.known(Quantity.KL_SEQ)
    if len(proxy) < 6 or not spreads or not kl:
        return None
    spread = level(first_part(spreads))
    gain = level(last_part(proxy)) - level(first_part(proxy))
    if spread <= 0 or gain < _SPREADS_GAINED * spread:
        return None
    measured = level([(step, abs(value)) for step, value in last_part(kl)])
    needed = gain**2 / (2 * spread**2)
    if measured >= min(_SHARE_OF_NEEDED * needed, _LITTLE_SEQ):
        return None
    detail = (
        f"the reward rose by {shown(gain)} ({shown(gain / spread)} of its spread {shown(spread)}), which takes about "
        f"{shown(needed)} nats/sequence; the log says {shown(measured)}"
    )
    numbers = {"gain": gain, "spread": spread, "kl_seq": measured, "needed_kl_seq": needed}
    return Sign("kl_suspicious", Grade.FAIL, kl[0][0], kl[-1][0], detail, numbers)


def not_finite(run: RunLog) -> Sign | None:
    """Any quantity that was logged as infinite or not a number."""
    found: list[tuple[int, Quantity]] = []
    for quantity, numbers in run.curve.values.items():
        bad = [s for s, v in zip(run.curve.steps, numbers, strict=True) if math.isinf(v)]
        found += [(bad[0], quantity)] if bad else []
    if not found:
        return None
    first = min(found)[0]
    names = ", ".join(f"{QUANTITY_WORDS[q]} (step {step})" for step, q in sorted(found))
    detail = f"not finite: {names}"
    return Sign("non_finite", Grade.FAIL, first, run.curve.steps[-1], detail, {"first_step": first})


def _lacks_first_steps(run: RunLog) -> str:
    found = kl_of(run)
    first = found[1][0][0] if found else 0
    return f"KL of the first step (it begins at step {first})" if first > 1 else ""


def _lacks_estimator(run: RunLog) -> str:
    named = {run.readings[one].estimator for one in _KL if one in run.readings}
    return (
        "" if named & _NEVER_BELOW_0 else "KL that is known to be k2, k3 or exact (never below 0)"
    )


RULES: tuple[Rule, ...] = (
    Rule("every logged number is finite", not_finite),
    Rule("the log holds a KL to the reference", missing),
    Rule("the KL stays bounded", exploded, (_KL,), least=_LEAST),
    Rule(
        "the policy starts at its reference", far_at_start, (_KL,), lacks_after=_lacks_first_steps
    ),
    Rule(
        "no estimator has a value that it can't have",
        impossible,
        (_KL,),
        lacks_after=_lacks_estimator,
    ),
    Rule(
        "sampler and trainer agree",
        sampler_apart,
        ((Quantity.SAMPLER_KL_TOKEN,),),
        is_optional=True,
        least=_LEAST,
    ),
    Rule(
        "updates are small",
        large_updates,
        ((Quantity.UPDATE_KL_TOKEN,),),
        is_optional=True,
        least=_LEAST,
    ),
    Rule(
        "the KL is as large as the reward's gain needs",
        too_small_to_be_true,
        ((Quantity.KL_SEQ,), (Quantity.PROXY,), (Quantity.PROXY_STD,)),
        least=_LEAST,
    ),
)
