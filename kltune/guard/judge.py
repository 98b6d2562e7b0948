"""What a trial measured so far in, the alarms of the guards that judge every step out. Pure.

A number that is not finite ends the trial as diverged; so may the exact KL above a limit, a jump of it, a
clearly negative k1 and the wall clock. The KL is always the monitor's KL(policy || reference), never the
distance of one update. `evaluation_alarms` holds the guards that judge at evaluations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from kltune.guard.alarm import Action, Alarm
from kltune.guard.curves import curve_of, kl_quantity
from kltune.guard.evaluations import alarm_of, evaluation_alarms
from kltune.guard.finite import judge_finite
from kltune.metrics.record import StepMetrics
from kltune.spec.guards import JumpGuardSpec, KLGuardSpec, NegativeKLGuardSpec
from kltune.spec.study import StudySpec
from kltune.spec.trial import KLUnit
from kltune.symptoms.kl import is_negative, kl_jump, kl_over_limit, negative_kl
from kltune.symptoms.symptom import Symptom
from kltune.trial.outcome import StopReason, Verdict

__all__ = ["StepWatch", "evaluation_alarms", "kl_in", "step_alarms"]


def step_alarms(
    spec: StudySpec, history: Sequence[StepMetrics], elapsed_s: float = 0.0
) -> list[Alarm]:
    """What the guards say right after the last step of ``history``; those that end the trial come first.

    ``history``: the steps done, in order, all of them or at least as many as the guards look back on;
    ``elapsed_s``: seconds of this trial. Where several would end it, the one that says most is first:
    diverged, a negative KL, the KL limit, a jump, the wall clock.
    """
    if not history:
        return []
    last, guards = history[-1], spec.guards
    alarms: list[Alarm] = []
    broken = judge_finite(last)
    if broken is not None:
        alarms.append(Alarm(Action.STOP, broken, last.step, last.step))
    found: list[tuple[str, Symptom | None]] = [
        (guards.negative_kl.action, _negative(history, guards.negative_kl)),
        *_kl_symptom(history, spec.kl_guard, spec.kl_unit),
        (guards.jump.action, _jump(history, guards.jump)),
    ]
    alarms += [alarm_of(action, symptom, last.step) for action, symptom in found if symptom]
    late = _judge_wall(elapsed_s, guards.wall)
    if late is not None:
        alarms.append(Alarm(Action.STOP, late, last.step, last.step))
    return sorted(alarms, key=lambda alarm: alarm.action is not Action.STOP)


@dataclass(frozen=True, slots=True)
class StepWatch:
    """Whether a single step gives a guard cause: without one, `step_alarms` is empty right after it.

    The wall clock is not watched. It is asked in worker processes, and pickles.
    """

    kl_guard: KLGuardSpec | None
    kl_unit: KLUnit
    jump: JumpGuardSpec | None = None
    negative_kl: NegativeKLGuardSpec | None = None

    @classmethod
    def of(cls, spec: StudySpec) -> Self:
        """The watch for the guards of ``spec`` that are on."""
        guards, kl_guard = spec.guards, spec.kl_guard
        return cls(
            kl_guard if kl_guard is not None and kl_guard.over == "steps" else None,
            spec.kl_unit,
            guards.jump if guards.jump.action != "off" else None,
            guards.negative_kl if guards.negative_kl.action != "off" else None,
        )

    def __call__(self, metrics: StepMetrics) -> bool:
        """True where the step is not finite, over the KL guard's limit, as high as a jump, or clearly negative."""
        if judge_finite(metrics) is not None:
            return True
        limit = None if self.kl_guard is None else self.kl_guard.limit
        if limit is not None and kl_in(metrics, self.kl_unit) > limit:
            return True
        if self.jump is not None and metrics.kl_token > self.jump.rise_token:
            return True
        return self.negative_kl is not None and _is_negative(metrics, self.negative_kl)


def kl_in(metrics: StepMetrics, kl_unit: KLUnit) -> float:
    """The step's exact KL in ``kl_unit``."""
    return metrics.kl_token if kl_unit is KLUnit.TOKEN else metrics.kl_seq


def _kl_symptom(
    history: Sequence[StepMetrics], guard: KLGuardSpec | None, kl_unit: KLUnit
) -> list[tuple[str, Symptom | None]]:
    if guard is None or guard.limit is None or guard.over != "steps":
        return []
    recent = _after(history, guard.warmup, guard.patience)
    symptom = kl_over_limit(
        curve_of(recent),
        limit=guard.limit,
        quantity=kl_quantity(kl_unit),
        patience=guard.patience,
    )
    return [(guard.action, symptom)]


def _jump(history: Sequence[StepMetrics], guard: JumpGuardSpec) -> Symptom | None:
    if guard.action == "off":
        return None
    if not history[-1].kl_token > guard.rise_token:
        return None  # almost every step: spares the curve
    recent = _after(history, guard.warmup, guard.patience + guard.window)
    return kl_jump(
        curve_of(recent),
        rise_token=guard.rise_token,
        factor=guard.factor,
        window=guard.window,
        patience=guard.patience,
    )


def _negative(history: Sequence[StepMetrics], guard: NegativeKLGuardSpec) -> Symptom | None:
    if guard.action == "off" or not _is_negative(history[-1], guard):
        return None
    recent = _after(history, guard.warmup, guard.patience)
    return negative_kl(
        curve_of(recent),
        sigmas=guard.sigmas,
        floor_seq=guard.floor_seq,
        floor_token=guard.floor_token,
        patience=guard.patience,
    )


def _is_negative(metrics: StepMetrics, guard: NegativeKLGuardSpec) -> bool:
    return is_negative(
        metrics.values.get("kl/k1_seq", math.nan),
        metrics.values.get("kl/k1_seq_se", math.nan),
        metrics.values.get("kl/k1_token", math.nan),
        sigmas=guard.sigmas,
        floor_seq=guard.floor_seq,
        floor_token=guard.floor_token,
    )


def _after(history: Sequence[StepMetrics], warmup: int, count: int) -> Sequence[StepMetrics]:
    """The last ``count`` steps, those of the warm-up left out."""
    recent = history[-count:]
    return [metrics for metrics in recent if metrics.step > warmup] if warmup else recent


def _judge_wall(elapsed_s: float, wall_s: float | None) -> Verdict | None:
    if wall_s is None or elapsed_s <= wall_s:
        return None
    return Verdict(StopReason.WALL_CLOCK, f"ran {elapsed_s:.1f} s > {wall_s:g} s of wall clock")
