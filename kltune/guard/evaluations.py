"""A trial's steps and evaluations in, the alarms of the guards that judge at evaluations out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kltune.guard.alarm import Action, Alarm
from kltune.guard.curves import checkpoints_of, curve_of, kl_curve, kl_quantity
from kltune.metrics.record import StepMetrics
from kltune.spec.guards import GuardSpec
from kltune.spec.study import StudySpec
from kltune.spec.trial import BetaUnit
from kltune.symptoms.curve import Curve
from kltune.symptoms.gold import gold_drop
from kltune.symptoms.kl import kl_over_limit
from kltune.symptoms.local import LocalFloors, local_kl
from kltune.symptoms.proxy import proxy_spread
from kltune.symptoms.scale import pseudo_explosion
from kltune.symptoms.stalled import stalled
from kltune.symptoms.symptom import Symptom
from kltune.symptoms.text import entropy_collapse, length_change, repetition, truncation
from kltune.symptoms.window import steps_words
from kltune.trial.objective import EvalPoint
from kltune.trial.outcome import StopReason, Verdict
from kltune.trial.words import KL_UNIT


@dataclass(frozen=True, slots=True)
class _Rule:
    """A guard over the steps, judged at evaluations."""

    guard: GuardSpec
    judge: Callable[[Curve], Symptom | None]


def evaluation_alarms(
    spec: StudySpec, history: Sequence[StepMetrics], points: Sequence[EvalPoint]
) -> list[Alarm]:
    """What the guards say right after the latest of ``points``; those that end the trial come first.

    ``history``: all steps done, in order; ``points``: all evaluations made. A guard over the steps fires
    where its rule holds at each of the last ``patience`` evaluations after ``warmup``. Pure: the same
    record gives the same alarms, however often the trial was interrupted.
    """
    if not points:
        return []
    ordered = sorted(points, key=lambda point: point.step)
    alarms = [*_kl_alarms(spec, ordered), *_gold_alarms(spec, ordered)]
    curve = curve_of([metrics for metrics in history if metrics.step <= ordered[-1].step])
    for rule in _rules(spec, history):
        alarm = _alarm(rule, curve, [point.step for point in ordered])
        if alarm is not None:
            alarms.append(alarm)
    return sorted(alarms, key=lambda alarm: alarm.action is not Action.STOP)


def alarm_of(action: str, symptom: Symptom, step: int) -> Alarm:
    """The alarm that a symptom gives, with its sentence."""
    verdict = Verdict(StopReason(symptom.kind.value), symptom.detail)
    return Alarm(Action(action), verdict, step, symptom.first_step)


def _kl_alarms(spec: StudySpec, points: Sequence[EvalPoint]) -> list[Alarm]:
    guard = spec.kl_guard
    if guard is None or guard.limit is None or guard.over != "evaluations":
        return []
    symptom = kl_over_limit(
        kl_curve([point for point in points if point.step > guard.warmup]),
        limit=guard.limit,
        quantity=kl_quantity(spec.kl_unit),
        patience=guard.patience,
        noun="evaluation",
    )
    return [] if symptom is None else [alarm_of(guard.action, symptom, points[-1].step)]


def _gold_alarms(spec: StudySpec, points: Sequence[EvalPoint]) -> list[Alarm]:
    guard, last = spec.guards.gold_drop, points[-1]
    action = guard.acts(spec.objective.metric)
    if action == "off" or not last.is_healthy or last.step <= guard.warmup:
        return []
    symptom = gold_drop(
        checkpoints_of(points, spec.objective, spec.kl_unit),
        chance=guard.chance,
        kl_factor=guard.kl_factor,
        patience=guard.patience,
        unit=KL_UNIT[spec.kl_unit],
    )
    if symptom is None or symptom.first_step <= guard.warmup:
        return []
    return [alarm_of(action, symptom, last.step)]


def _alarm(rule: _Rule, curve: Curve, evaluated: Sequence[int]) -> Alarm | None:
    guard = rule.guard
    at = [step for step in evaluated if step > guard.warmup][-guard.patience :]
    if guard.action == "off" or len(at) < guard.patience:
        return None
    last = rule.judge(curve)
    if last is None:
        return None
    earlier = [rule.judge(curve.up_to(step)) for step in at[:-1]]
    if any(found is None or found.kind is not last.kind for found in earlier):
        return None
    first_step = min([last.first_step, *(found.first_step for found in earlier if found)])
    detail = f"{last.detail}; seen at {steps_words(at, 'evaluation')}"
    verdict = Verdict(StopReason(last.kind.value), detail)
    return Alarm(Action(guard.action), verdict, at[-1], first_step)


def _rules(spec: StudySpec, history: Sequence[StepMetrics]) -> list[_Rule]:
    """The guards in the order in which the first to stop wins."""
    g = spec.guards
    return [
        _Rule(g.stalled, lambda curve: _stalled(spec, curve)),
        _Rule(g.proxy_spread, lambda curve: _proxy_spread(spec, curve)),
        _Rule(g.pseudo_explosion, lambda curve: _pseudo_explosion(spec, curve)),
        _Rule(g.local_kl, lambda curve: _local_kl(spec, curve, history)),
        _Rule(
            g.entropy,
            lambda c: entropy_collapse(c, share=g.entropy.share, window=g.entropy.window),
        ),
        _Rule(
            g.repetition,
            lambda c: repetition(
                c, share=g.repetition.share, rise=g.repetition.rise, window=g.repetition.window
            ),
        ),
        _Rule(
            g.length,
            lambda c: length_change(
                c, collapse=g.length.collapse, growth=g.length.growth, window=g.length.window
            ),
        ),
        _Rule(
            g.truncation,
            lambda c: truncation(
                c, share=g.truncation.share, rise=g.truncation.rise, window=g.truncation.window
            ),
        ),
    ]


def _stalled(spec: StudySpec, curve: Curve) -> Symptom | None:
    guard = spec.guards.stalled
    return stalled(
        curve,
        kl_seq=guard.kl_seq,
        sigmas=guard.sigmas,
        window=guard.window,
        beta_in_reward=spec.beta_unit is BetaUnit.REWARD,
    )


def _proxy_spread(spec: StudySpec, curve: Curve) -> Symptom | None:
    guard = spec.guards.proxy_spread
    return proxy_spread(
        curve, zero_groups=guard.zero_groups, share=guard.share, window=guard.window
    )


def _pseudo_explosion(spec: StudySpec, curve: Curve) -> Symptom | None:
    guard = spec.guards.pseudo_explosion
    return pseudo_explosion(
        curve, factor=guard.factor, kl_token=guard.kl_token, window=guard.window
    )


def _local_kl(spec: StudySpec, curve: Curve, history: Sequence[StepMetrics]) -> Symptom | None:
    guard = spec.guards.local_kl
    floors = LocalFloors(guard.mean_token, guard.bucket_token, guard.p99_token, guard.ratio)
    profiles = {m.step: m.profile for m in history if m.profile is not None}
    return local_kl(curve, profiles, floors=floors, window=guard.window)
