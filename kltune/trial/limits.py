"""Golds beside the objective's and their limits in; what breaks them, and by how much, out. Pure.

The rule (kltune.spec.objective.GoldLimit): a checkpoint breaks a limit where the gold's mean over
the select prompts is beyond it. The mean alone decides. A margin of a standard error would only
move the limit by an amount that depends on the number of prompts; that the prompts can't tell is
said in the report instead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev

from kltune.spec.objective import GoldLimit

_ROUNDING = 1e-9
"""A limit that is met to the last digit is met."""

ByPrompt = Sequence[float]
"""A gold's mean of each prompt, in the order of the select split."""


def floor_of(limit: GoldLimit, start: ByPrompt | None) -> float | None:
    """The lowest mean that is allowed, in the gold's unit; none where there is no limit.

    ``start``: the gold at step 0. NaN where a drop is limited and nothing is known of it, so that
    nothing is allowed: every comparison with NaN is false.
    """
    if limit.min is not None:
        return limit.min
    if limit.max_drop is None:
        return None
    return (fmean(start) if start else math.nan) - limit.max_drop


def unit_of(limit: GoldLimit, start: ByPrompt | None) -> float:
    """What an overshoot of 1 means, in the gold's unit: the drop that is allowed.

    For an absolute floor the standard deviation over prompts at step 0, the same for every trial
    of a seed; 1 where the prompts don't differ.
    """
    if limit.max_drop is not None:
        return limit.max_drop
    spread = pstdev(start) if start else 0.0
    return spread if math.isfinite(spread) and spread > 0 else 1.0


def slacks(
    limits: Mapping[str, GoldLimit],
    golds: Mapping[str, ByPrompt],
    start: Mapping[str, ByPrompt],
) -> dict[str, float]:
    """How far each limited gold is above its floor, in units of `unit_of`; below 0: the limit is broken.

    ``golds`` of the checkpoint and ``start`` at step 0, by name. Minus infinity where the gold, or
    the start that it is held against, is not on record or not finite: what can't be checked is not
    allowed.
    """
    found: dict[str, float] = {}
    for name, limit in limits.items():
        floor = floor_of(limit, start.get(name))
        if floor is None:
            continue
        scores = golds.get(name)
        margin = (fmean(scores) if scores else math.nan) - floor
        slack = margin / unit_of(limit, start.get(name))
        slack = 0.0 if abs(slack) < _ROUNDING else slack
        found[name] = slack if math.isfinite(slack) else -math.inf
    return found


def are_respected(
    limits: Mapping[str, GoldLimit],
    golds: Mapping[str, ByPrompt],
    start: Mapping[str, ByPrompt],
) -> bool:
    """Whether a checkpoint breaks no limit; ``golds`` and ``start`` as for `slacks`."""
    return all(slack >= 0 for slack in slacks(limits, golds, start).values())
