"""A run's log in, whether its mean log-ratio k1 lies below 0 over the run out. Pure.

The expectation of k1 under the policy is a KL: single steps may be negative by chance, a mean over many may not.
"""

from __future__ import annotations

import math
from statistics import fmean, stdev

from kltune.diagnose.result import Sign
from kltune.diagnose.runlog import RunLog
from kltune.diagnose.series import Pairs, last_part, level, shown, values
from kltune.grade import Grade
from kltune.symptoms.curve import Quantity

_SIGMAS = 6.0
"""Standard errors over steps."""
_STEPS, _STEPS_FAR = 20, 3
"""Logged steps that a mean is taken over at least; fewer where each lies far below 0."""
_FLOOR_TOKEN = 1e-3
"""Nats per token that rounding (bf16) and kernels may leave in a mean, either way."""
_FLOOR_SEQ = 0.1
"""The same per sequence, where the length isn't known: 100 tokens."""
_FAR_TOKEN, _FAR_SEQ = 0.1, 5.0
"""Nats below 0 that no rounding explains; per sequence only where the length isn't known."""


def k1_of(run: RunLog) -> tuple[Quantity, Pairs] | None:
    """The run's signed log-ratio: per token, else per sequence; a KL whose estimator is k1 is one."""
    choices = (
        (Quantity.K1_TOKEN, Quantity.KL_TOKEN),
        (Quantity.K1_SEQ, Quantity.KL_SEQ),
    )
    for k1, kl in choices:
        pairs = run.curve.known(k1)
        reading = run.readings.get(kl)
        if not pairs and reading is not None and reading.estimator == "k1":
            pairs = run.curve.known(kl)
        if pairs:
            return k1, pairs
    return None


def negative_over_run(run: RunLog) -> Sign | None:
    """Mean k1 over all steps, or over the last half, below 0 by many standard errors and more than rounding."""
    found = k1_of(run)
    if found is None:
        return None
    quantity, pairs = found
    floor, far = _limits(run, quantity)
    for span in (pairs, last_part(pairs, share=0.5)):
        sign = _below(quantity, span, floor, far)
        if sign is not None:
            return sign
    return None


def _limits(run: RunLog, quantity: Quantity) -> tuple[float, float]:
    """What rounding may make, and what is far below 0: nats in the quantity's unit."""
    if quantity is Quantity.K1_TOKEN:
        return _FLOOR_TOKEN, _FAR_TOKEN
    length = run.curve.known(Quantity.LENGTH)
    if not length:
        return _FLOOR_SEQ, _FAR_SEQ
    tokens = level(length)
    return _FLOOR_TOKEN * tokens, _FAR_TOKEN * tokens


def _below(quantity: Quantity, pairs: Pairs, floor: float, far: float) -> Sign | None:
    count = len(pairs)
    if count < _STEPS_FAR:
        return None
    numbers = values(pairs)
    mean, error = fmean(numbers), stdev(numbers) / math.sqrt(count)
    is_far = mean < -far
    if mean >= -max(floor, _SIGMAS * error) or (count < _STEPS and not is_far):
        return None
    unit = "nats/token" if quantity is Quantity.K1_TOKEN else "nats/sequence"
    below = sum(1 for value in numbers if value < 0)
    first, last = pairs[0][0], pairs[-1][0]
    detail = (
        f"mean k1 {shown(mean)} ± {shown(error)} {unit} over steps {first}-{last}, below 0 at {below} of {count} steps; "
        f"its expectation is a KL, never negative (rounding makes {shown(floor)} at most): log-probabilities of policy "
        "and reference are not of the same tokens, or not of the distribution that was sampled"
    )
    told = {quantity.value: mean, f"{quantity.value}_se": error, "steps_below": float(below)}
    grade = Grade.FAIL if is_far else Grade.WARN
    return Sign("negative_kl", grade, first, last, detail, told)
