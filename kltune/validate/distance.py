"""The recommended trial in; whether its KL moved smoothly and without outliers out, as lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kltune.grade import Grade
from kltune.metrics.rows import Row
from kltune.spec.trial import KLUnit
from kltune.trial.words import KL_UNIT, number
from kltune.validate import thresholds as limit
from kltune.validate.result import Line

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Jump:
    """The largest step of KL upwards."""

    step: int
    factor: float
    """KL of the step over the median of the three before it."""
    noises: float
    """The same's logarithm in robust standard deviations of all steps'."""


def largest_jump(steps: Sequence[int], kl: Sequence[float]) -> Jump | None:
    """The clearest jump upwards; none where there are too few finite steps above the run-up."""
    found = np.array(kl, dtype=np.float64)
    at = np.array(steps)[np.isfinite(found)]
    found = found[np.isfinite(found)]
    if len(found) < limit.FEWEST_STEPS or not found.max() > 0:
        return None
    before = np.array([np.median(found[i - 3 : i]) for i in range(3, len(found))])
    is_up = before > limit.JUMP_FLOOR * np.median(found)
    moved = np.log(np.maximum(found[3:], 1e-300) / np.maximum(before, 1e-300))[is_up]
    if len(moved) < limit.FEWEST_STEPS // 2:
        return None
    middle = float(np.median(moved))
    spread = 1.4826 * float(np.median(np.abs(moved - middle)))
    # Of a new level every step stands above the three before, until these are of it too: the first is meant.
    worst = int((moved >= 0.8 * moved.max()).argmax()) if moved.max() > 0 else int(moved.argmax())
    noises = (float(moved[worst]) - middle) / spread if spread > 0 else math.inf
    return Jump(int(at[3:][is_up][worst]), math.exp(float(moved[worst])), noises)


def smooth_line(steps: Sequence[int], kl: Sequence[float], unit: KLUnit) -> Line:
    """Whether the KL of the recommended trial jumped."""
    jump = largest_jump(steps, kl)
    threshold = (
        f"warn {limit.JUMP_WARN:g} ×, fail {limit.JUMP_FAIL:g} ×, and beyond {limit.JUMP_NOISES:g} times "
        "the usual scatter"
    )
    title = "KL moves smoothly"
    if jump is None:
        meaning = "Too few steps to tell whether the KL jumps."
        return Line("kl_smooth", title, Grade.WARN, None, "×", "not told", threshold, meaning)
    is_noise = jump.noises < limit.JUMP_NOISES
    grade = Grade.PASS if is_noise else _grade(jump.factor, limit.JUMP_WARN, limit.JUMP_FAIL)
    shown = f"{number(jump.factor, 2)} × at step {jump.step}"
    meaning = (
        f"The largest step up of the KL (in {KL_UNIT[unit]}, against the three steps before) is within the "
        "scatter of the steps."
        if grade is Grade.PASS
        else f"At step {jump.step} the KL was {number(jump.factor, 2)} times that of the three steps before: more than "
        "the scatter of the steps explains. A larger model can be lost at such a step."
    )
    action = (
        ""
        if grade is Grade.PASS
        else "Lower the learning rate or max_grad_norm, or take a larger batch; look at the samples of that step."
    )
    return Line("kl_smooth", title, grade, jump.factor, "×", shown, threshold, meaning, action)


def outlier_line(rows: Sequence[Row], samples: Sequence[Row]) -> Line:
    """Whether single tokens carry the KL; by completions where tokens are not on record.

    ``rows``: steps; ``samples``: kept completions around the stop.
    """
    tokens = [
        (float(row["kl/exact_max_token"]), int(row["step"]))
        for row in rows
        if isinstance(row.get("kl/exact_max_token"), int | float)
    ]
    return _of_tokens(max(tokens)) if tokens else _of_samples(samples)


def _of_tokens(worst: tuple[float, int]) -> Line:
    largest, step = worst
    grade = _grade(largest, limit.TOKEN_WARN, limit.TOKEN_FAIL)
    threshold = f"warn {limit.TOKEN_WARN:g}, fail {limit.TOKEN_FAIL:g} nats of one token"
    shown = f"{number(largest)} nats at step {step}"
    meaning = "No single token is far from the reference: the KL is spread over many."
    action = ""
    if grade is not Grade.PASS:
        meaning = (
            f"One token of step {step} has a KL of {number(largest)} nats: the policy writes what the reference "
            "holds for all but impossible. Trainers that clamp see another KL there than is meant."
        )
        action = "Raise beta or lower the learning rate; in the big run watch the largest token KL."
    title = "No outliers in per-token KL"
    return Line("kl_outliers", title, grade, largest, "nats", shown, threshold, meaning, action)


def _of_samples(samples: Sequence[Row]) -> Line:
    title, unit = "No outliers in per-token KL", "share"
    threshold = f"warn: one completion has {100 * limit.SAMPLE_WARN:g} % or more of their KL"
    kls = [(float(r["kl_seq"]), int(r["step"])) for r in samples if r.get("kl_seq") is not None]
    total = sum(kl for kl, _ in kls)
    if len(kls) < limit.FEWEST_SAMPLES or not total > 0:
        meaning = "Neither the largest token KL nor enough completions were recorded."
        action = "Run a trial with this version of kltune: it records kl/exact_max_token."
        return Line(
            "kl_outliers", title, Grade.WARN, None, unit, "not told", threshold, meaning, action
        )
    worst, step = max(kls)
    share = worst / total
    grade = Grade.PASS if share < limit.SAMPLE_WARN else Grade.WARN
    shown = f"{100 * share:.0f} % of the KL in one completion"
    found = (
        "none has a large part of their KL."
        if grade is Grade.PASS
        else f"one of step {step} has most of their KL, so single texts carry the mean."
    )
    meaning = f"By {len(kls)} completions around the stop (this study did not record single tokens): {found}"
    action = "" if grade is Grade.PASS else "Read that completion in the report's samples."
    return Line("kl_outliers", title, grade, share, unit, shown, threshold, meaning, action)


def _grade(value: float, warn: float, fail: float) -> Grade:
    return Grade.FAIL if value >= fail else Grade.WARN if value >= warn else Grade.PASS
