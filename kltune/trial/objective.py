"""A trial's evaluations in, the number that Optuna maximises and its constraint out. Pure.

design.md §3, "A trial's value". Step 0 is evaluated but is no checkpoint of the trial. An
evaluation with a non-finite number is left out. All numbers that come out are finite
plain floats, whatever scalars went in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, stdev
from typing import Any

from kltune.metrics.record import EvalMetrics
from kltune.metrics.rows import other_golds
from kltune.spec.study import ObjectiveSpec
from kltune.spec.trial import KLUnit
from kltune.trial.limits import are_respected, slacks

SMALLEST_VIOLATION = 1e-3
"""Constraint of an infeasible trial that used all its steps and overshot by nothing measurable."""


@dataclass(frozen=True, slots=True)
class EvalPoint:
    """One evaluation on the select prompts."""

    step: int
    gold_by_prompt: tuple[float, ...]
    """Mean gold of each prompt, in the same order at every step."""
    kl_token: float
    kl_seq: float
    others: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])
    """The same of the golds beside the objective's, by name."""

    @property
    def gold(self) -> float:
        """Mean over prompts; NaN where there is none."""
        return fmean(self.gold_by_prompt) if self.gold_by_prompt else math.nan

    def kl(self, kl_unit: KLUnit) -> float:
        """The KL of this checkpoint in ``kl_unit``."""
        return self.kl_token if kl_unit is KLUnit.TOKEN else self.kl_seq

    @property
    def is_healthy(self) -> bool:
        """Whether every number is finite."""
        return math.isfinite(self.gold + self.kl_token + self.kl_seq)


@dataclass(frozen=True, slots=True)
class Worth:
    """What a trial is worth."""

    value: float | None
    """By the objective's metric; none only where not even step 0 has a finite evaluation."""
    is_feasible: bool
    constraint: float
    """At most 0 when feasible: minus the share of the limit left, of the limit nearest to being
    broken. Above 0 when not: 1 - steps_run/steps + overshoot, each limit's as a share of it
    (a gold's in units of `limits.unit_of`), added up, at the checkpoint where that is least."""
    best_step: int | None
    """Checkpoint with the highest gold over all prompts that respects the limits; where none
    does, the highest of all. None where nothing was evaluated after step 0."""
    gold_start: float | None
    """Gold at step 0."""
    gold_peak: float | None
    """Gold at ``best_step``, not corrected for having picked a maximum."""
    gold_peak_se: float | None
    """Its standard error over prompts; none with fewer than two prompts."""
    gold_corrected: float | None
    """The peak with the step chosen on one half of the prompts and valued on the other,
    averaged over both ways round."""
    gold_final: float | None
    """Mean of the last two evaluations after step 0."""
    gold_mean: float | None
    """Area under gold over steps, divided by the steps between the first and last evaluation
    that were actually run; nothing is assumed for steps that an early end left out."""
    kl_token: float | None
    """Nats per token at ``best_step``."""
    kl_seq: float | None
    """Nats per sequence at ``best_step``."""


def point_of(metrics: EvalMetrics) -> EvalPoint:
    """The part of an evaluation that a trial's worth needs."""
    return EvalPoint(
        step=int(metrics.step),
        gold_by_prompt=tuple(float(gold) for gold in metrics.gold_by_prompt),
        kl_token=float(metrics.kl_token),
        kl_seq=float(metrics.kl_seq),
        others={
            name: tuple(float(gold) for gold in other.by_prompt)
            for name, other in metrics.others.items()
        },
    )


def point_of_row(row: Mapping[str, Any]) -> EvalPoint:
    """The same from a row of evals.jsonl; a number recorded as null (non-finite) becomes NaN."""
    return EvalPoint(
        step=int(row["step"]),
        gold_by_prompt=tuple(_number(gold) for gold in row["gold_by_prompt"]),
        kl_token=_number(row["eval/kl_token"]),
        kl_seq=_number(row["eval/kl_seq"]),
        others={name: other.by_prompt for name, other in other_golds(row).items()},
    )


def is_allowed(
    point: EvalPoint, objective: ObjectiveSpec, kl_unit: KLUnit, start: EvalPoint | None = None
) -> bool:
    """Whether a checkpoint may be chosen: after step 0, healthy, and within the limits of KL and golds.

    ``start``: the evaluation at step 0; without it no limit on a drop from there is respected.
    """
    within = objective.kl_limit is None or point.kl(kl_unit) <= objective.kl_limit
    return (
        point.step > 0 and point.is_healthy and within and breaks_no_gold(point, objective, start)
    )


def breaks_no_gold(point: EvalPoint, objective: ObjectiveSpec, start: EvalPoint | None) -> bool:
    """Whether the golds beside the objective's are within their limits (`kltune.trial.limits`)."""
    at_start = {} if start is None else start.others
    return are_respected(objective.gold_limits, point.others, at_start)


def judge_trial(
    evals: Sequence[EvalPoint],
    objective: ObjectiveSpec,
    kl_unit: KLUnit,
    steps_run: int,
    steps: int,
    *,
    diverged: bool = False,
) -> Worth:
    """Say what a trial is worth from its evaluations, whatever ended it.

    Feasible: some checkpoint after step 0 respects ``objective.kl_limit`` (in ``kl_unit``) and
    the limits of ``objective.also``;
    under ``gold_final`` only if the last evaluation does and the trial did not diverge, since
    a diverged trial has no end to judge. Where no checkpoint respects the limits the value
    is that of all checkpoints; where there is none after step 0 it is gold at step 0.
    """
    healthy = sorted((p for p in evals if p.is_healthy), key=lambda p: p.step)
    checkpoints = [p for p in healthy if p.step > 0]
    first = next((p for p in healthy if p.step == 0), None)
    allowed = [p for p in checkpoints if is_allowed(p, objective, kl_unit, first)]
    candidates = allowed or checkpoints
    best = max(candidates, key=lambda p: (p.gold, -p.step), default=None)
    peak = None if best is None else best.gold
    corrected = cross_valued(candidates)
    final = fmean(p.gold for p in checkpoints[-2:]) if checkpoints else None
    mean = area_mean(healthy)
    start = None if first is None else first.gold
    value = {"gold_peak": corrected, "gold_final": final, "gold_mean": mean}[objective.metric]
    judged = _judged(checkpoints, allowed, best, objective, diverged=diverged)
    rooms = [_rooms(p, first, objective, kl_unit) for p in judged]
    return Worth(
        value=start if value is None else value,
        is_feasible=bool(rooms) and min(rooms[0]) >= 0,
        constraint=_constraint(rooms, 1 - steps_run / steps),
        best_step=None if best is None else best.step,
        gold_start=start,
        gold_peak=peak,
        gold_peak_se=None if best is None else standard_error(best.gold_by_prompt),
        gold_corrected=corrected,
        gold_final=final,
        gold_mean=mean,
        kl_token=None if best is None else best.kl_token,
        kl_seq=None if best is None else best.kl_seq,
    )


def cross_valued(points: Sequence[EvalPoint]) -> float | None:
    """Gold at the best of ``points``, corrected for having picked a maximum.

    Prompts are halved by the parity of their index, the same for every trial: the step is
    chosen on one half and valued on the other, then the other way round, and both are
    averaged. With fewer than two prompts there is nothing to halve: the plain maximum.
    """
    if not points:
        return None
    if min(len(p.gold_by_prompt) for p in points) < 2:
        return max(p.gold for p in points)
    values: list[float] = []
    for parity in (0, 1):
        chosen = max(points, key=lambda p: (fmean(p.gold_by_prompt[parity::2]), -p.step))
        values.append(fmean(chosen.gold_by_prompt[1 - parity :: 2]))
    return fmean(values)


def area_mean(points: Sequence[EvalPoint]) -> float | None:
    """Mean of gold over steps by the trapezoid rule; ``points`` in step order."""
    if not points:
        return None
    span = points[-1].step - points[0].step
    if span == 0:
        return points[-1].gold
    area = sum(
        (right.step - left.step) * (left.gold + right.gold) / 2 for left, right in pairwise(points)
    )
    return area / span


def standard_error(values: Sequence[float]) -> float | None:
    """Standard error of the mean (n - 1); none for fewer than two values."""
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def _judged(
    checkpoints: Sequence[EvalPoint],
    allowed: Sequence[EvalPoint],
    best: EvalPoint | None,
    objective: ObjectiveSpec,
    *,
    diverged: bool,
) -> Sequence[EvalPoint]:
    """The checkpoints whose KL decides; the first decides if it is allowed, else the mildest counts."""
    if objective.metric == "gold_final":
        return [] if diverged else checkpoints[-1:]
    return [best] if allowed and best is not None else checkpoints


def _rooms(
    point: EvalPoint, start: EvalPoint | None, objective: ObjectiveSpec, kl_unit: KLUnit
) -> list[float]:
    """What is left up to each limit, as a share of it; below 0 where it is broken, 1 where there is none."""
    limit = objective.kl_limit
    kl_room = 1.0 if limit is None else (limit - point.kl(kl_unit)) / limit
    at_start = {} if start is None else start.others
    return [kl_room, *slacks(objective.gold_limits, point.others, at_start).values()]


def _constraint(rooms: Sequence[Sequence[float]], unused: float) -> float:
    """``rooms``: of each judged checkpoint, the first of which decides if it is allowed."""
    if rooms and min(rooms[0]) >= 0:
        return 0.0 - min(1.0, *rooms[0])  # never -0.0
    overshoots = [-sum(room for room in found if room < 0) for found in rooms]
    overshoot = min((least for least in overshoots if math.isfinite(least)), default=0.0)
    return max(SMALLEST_VIOLATION, unused + overshoot)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
