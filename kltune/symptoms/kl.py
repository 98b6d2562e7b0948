"""KL by step in; KL over a limit, a jump of it, or a negative estimate out."""

from __future__ import annotations

import math
from statistics import median

from kltune.symptoms.curve import Curve, Quantity
from kltune.symptoms.symptom import Symptom, SymptomKind
from kltune.symptoms.window import steps_words

_UNITS = {Quantity.KL_TOKEN: "nats/token", Quantity.KL_SEQ: "nats/sequence"}


def kl_over_limit(
    curve: Curve,
    *,
    limit: float,
    quantity: Quantity = Quantity.KL_TOKEN,
    patience: int = 3,
    noun: str = "step",
) -> Symptom | None:
    """KL above ``limit`` at the last ``patience`` logged steps; the limit itself is allowed.

    ``limit`` is in the unit of ``quantity`` (KL_TOKEN or KL_SEQ). ``noun``: what a step of this curve is
    for people (``evaluation``). Infinity is above any limit, NaN above none.
    """
    recent = [
        (step, value)
        for step, value in zip(curve.steps, curve.values.get(quantity, ()), strict=False)
        if not math.isnan(value)
    ][-patience:]
    if len(recent) < patience or not all(value > limit for _, value in recent):
        return None
    steps = [step for step, _ in recent]
    kl = recent[-1][1]
    detail = f"kl {apart(kl, limit)} > {limit:g} {_UNITS[quantity]} for {steps_words(steps, noun)}"
    numbers = {quantity.value: kl, "limit": limit}
    return Symptom(SymptomKind.KL_LIMIT, steps[0], steps[-1], detail, numbers)


def kl_jump(
    curve: Curve,
    *,
    rise_token: float = 1.0,
    factor: float = 4.0,
    window: int = 5,
    patience: int = 2,
) -> Symptom | None:
    """KL (nats per token) that rose within one step and stayed up for ``patience`` steps, that one's included.

    Up: more than ``rise_token`` nats per token above, and more than ``factor`` times, the median of the
    ``window`` steps before the jump. At least one step before it must be known.
    """
    known = curve.known(Quantity.KL_TOKEN)
    before, after = known[: len(known) - patience][-window:], known[-patience:]
    if not before or len(after) < patience:
        return None
    usual = max(0.0, median(value for _, value in before))
    if not all(value > usual + rise_token and value > factor * usual for _, value in after):
        return None
    steps = [step for step, _ in after]
    first = after[0][1]
    detail = (
        f"kl jumped from {usual:.3g} (median of {steps_words([step for step, _ in before])}) to {first:.3g} "
        f"nats/token at step {steps[0]} and is {after[-1][1]:.3g} at step {steps[-1]}"
    )
    numbers = {"before_token": usual, "kl_token": after[-1][1], "jump_token": first}
    return Symptom(SymptomKind.KL_JUMP, steps[0], steps[-1], detail, numbers)


def negative_kl(
    curve: Curve,
    *,
    sigmas: float = 4.0,
    floor_seq: float = 0.05,
    floor_token: float = 0.1,
    patience: int = 2,
) -> Symptom | None:
    """A mean log-ratio k1 clearly below 0 at the last ``patience`` steps: its expectation is a KL, never negative.

    Clearly: by ``sigmas`` standard errors over completions and by ``floor_seq`` nats per sequence; where no
    standard error is logged, by ``floor_token`` nats per token. Small negatives are noise.
    """
    seq = curve.values.get(Quantity.K1_SEQ, ())
    errors = curve.values.get(Quantity.K1_SEQ_SE, ())
    token = curve.values.get(Quantity.K1_TOKEN, ())
    at: list[tuple[int, float, float, float]] = []
    for i, step in enumerate(curve.steps):
        k1_seq, se, k1_token = (_at(values, i) for values in (seq, errors, token))
        if not (math.isnan(k1_seq) and math.isnan(k1_token)):
            at.append((step, k1_seq, se, k1_token))
    recent = at[-patience:]
    limits = {"sigmas": sigmas, "floor_seq": floor_seq, "floor_token": floor_token}
    if len(recent) < patience or not all(is_negative(*one[1:], **limits) for one in recent):
        return None
    steps = [one[0] for one in recent]
    _, k1_seq, se, k1_token = recent[-1]
    by_error = math.isfinite(k1_seq) and math.isfinite(se)
    shown = f"{k1_seq:.3g} ± {se:.2g} nats/sequence" if by_error else f"{k1_token:.3g} nats/token"
    detail = (
        f"mean k1 {shown}, clearly below 0, for {steps_words(steps)}: log-probabilities of policy and reference "
        "are not of the same tokens, or not of the distribution that was sampled"
    )
    numbers = {"k1_seq": k1_seq, "k1_seq_se": se, "k1_token": k1_token}
    numbers = {name: value for name, value in numbers.items() if math.isfinite(value)}
    return Symptom(SymptomKind.NEGATIVE_KL, steps[0], steps[-1], detail, numbers)


def is_negative(
    k1_seq: float,
    se: float,
    k1_token: float,
    *,
    sigmas: float,
    floor_seq: float,
    floor_token: float,
) -> bool:
    """Whether one step's mean k1 is clearly below 0 (see `negative_kl`); NaN where a number is not known."""
    if math.isfinite(k1_seq) and math.isfinite(se):
        return k1_seq < -max(floor_seq, sigmas * se)
    return k1_token < -floor_token


def apart(kl: float, limit: float) -> str:
    """The KL with three digits, or as many as it takes to differ from the limit."""
    for digits in range(3, 12):
        text = f"{kl:.{digits}g}"
        if float(text) > limit:
            return text
    return repr(kl)


def _at(values: tuple[float, ...], index: int) -> float:
    return values[index] if index < len(values) else math.nan
