"""What a trial measured so far in, a verdict that ends it early out (or none). Pure.

Rules in force: a non-finite number ends the trial as diverged; the exact KL above a limit
for some steps in a row; the wall clock of the trial. The KL is always the monitor's
KL(policy || reference), never the distance of one update.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kltune.metrics.record import StepMetrics
from kltune.spec.study import KLGuardSpec
from kltune.spec.trial import KLUnit
from kltune.trial.outcome import StopReason, Verdict
from kltune.trial.words import KL_UNIT


def judge_steps(
    history: Sequence[StepMetrics],
    kl_guard: KLGuardSpec | None,
    kl_unit: KLUnit,
    elapsed_s: float = 0.0,
    wall_s: float | None = None,
) -> Verdict | None:
    """Decide after the last step of ``history`` whether the trial ends here.

    ``kl_guard.limit`` is in ``kl_unit``; ``elapsed_s`` and ``wall_s`` are seconds of this
    trial. Where several rules fire, the one that says most wins: diverged, KL, wall clock.
    """
    if not history:
        return None
    return (
        _judge_finite(history[-1])
        or _judge_kl(history, kl_guard, kl_unit)
        or _judge_wall(elapsed_s, wall_s)
    )


@dataclass(frozen=True, slots=True)
class StepWatch:
    """Whether a single step gives a guard cause: without one, no guard can fire right after it."""

    kl_guard: KLGuardSpec | None
    kl_unit: KLUnit

    def __call__(self, metrics: StepMetrics) -> bool:
        """True where the step is not finite, or over the KL guard's limit."""
        if _judge_finite(metrics) is not None:
            return True
        return self.kl_guard is not None and kl_in(metrics, self.kl_unit) > self.kl_guard.limit


def kl_in(metrics: StepMetrics, kl_unit: KLUnit) -> float:
    """The step's exact KL in ``kl_unit``."""
    return metrics.kl_token if kl_unit is KLUnit.TOKEN else metrics.kl_seq


def _judge_finite(last: StepMetrics) -> Verdict | None:
    # time/ and tokens/ metrics may rightly have nothing to say; the rest comes from the weights.
    from_weights = {
        name: value for name, value in last.values.items() if name.startswith(("kl/", "train/"))
    }
    named = {"kl/exact_token": last.kl_token, "kl/exact_seq": last.kl_seq, **from_weights}
    wrong = [f"{name} = {value}" for name, value in named.items() if not math.isfinite(value)]
    kl_is_finite = math.isfinite(last.kl_token) and math.isfinite(last.kl_seq)
    if last.is_finite and kl_is_finite:
        return None
    tokens = last.values.get("train/nonfinite_tokens", 0.0)
    if math.isfinite(tokens) and tokens > 0:
        wrong.append(f"{tokens:.0f} valid tokens")
    where = ", ".join(wrong) if wrong else "a valid token, the loss or a gradient"
    return Verdict(StopReason.DIVERGED, f"not finite at step {last.step}: {where}")


def _judge_kl(
    history: Sequence[StepMetrics], kl_guard: KLGuardSpec | None, kl_unit: KLUnit
) -> Verdict | None:
    if kl_guard is None or len(history) < kl_guard.patience:
        return None
    recent = history[-kl_guard.patience :]
    if not all(kl_in(metrics, kl_unit) > kl_guard.limit for metrics in recent):
        return None
    kl = kl_in(recent[-1], kl_unit)
    steps = (
        f"1 step (step {recent[-1].step})"
        if len(recent) == 1
        else f"{len(recent)} steps (steps {recent[0].step}-{recent[-1].step})"
    )
    detail = f"kl {_apart(kl, kl_guard.limit)} > {kl_guard.limit:g} {KL_UNIT[kl_unit]} for {steps}"
    return Verdict(StopReason.KL_LIMIT, detail)


def _apart(kl: float, limit: float) -> str:
    """The KL with three digits, or as many as it takes to differ from the limit."""
    for digits in range(3, 12):
        text = f"{kl:.{digits}g}"
        if float(text) > limit:
            return text
    return repr(kl)


def _judge_wall(elapsed_s: float, wall_s: float | None) -> Verdict | None:
    if wall_s is None or elapsed_s <= wall_s:
        return None
    return Verdict(StopReason.WALL_CLOCK, f"ran {elapsed_s:.1f} s > {wall_s:g} s of wall clock")
