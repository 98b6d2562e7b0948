"""One attempt of a trial in a slot: what was measured so far in, what is due and what it is worth out."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kltune.errors import DiskError
from kltune.guard.alarm import Action, Alarm
from kltune.guard.curves import lean
from kltune.guard.judge import StepWatch, evaluation_alarms, step_alarms
from kltune.metrics.names import METRICS
from kltune.metrics.record import EvalMetrics, StepMetrics, TokenProfile
from kltune.spec.study import StudySpec
from kltune.study.ledger import Asked
from kltune.study.observer import Observer
from kltune.study.pruner import Standing
from kltune.trainer.protocol import Ahead
from kltune.trial.folder import TrialFolder, as_recorded
from kltune.trial.objective import (
    EvalPoint,
    Worth,
    breaks_no_gold,
    is_allowed,
    judge_trial,
    point_of,
    point_of_row,
    standard_error,
)
from kltune.trial.outcome import STATE_OF, StopReason, TrialOutcome, TrialState, Verdict
from kltune.trial.record import read_profiles, read_trial

_logger = logging.getLogger(__name__)


@dataclass
class Attempt:
    """What the loop knows of the trial in one slot."""

    slot: int
    asked: Asked
    folder: TrialFolder
    spec: StudySpec
    started_at: float
    """On the loop's clock, seconds."""
    step: int
    """Steps done."""
    history: list[StepMetrics] = field(default_factory=list[StepMetrics])
    """All steps, those of earlier attempts up to the checkpoint included; profiles as they are recorded, and of all
    but the last only what guards look back on."""
    points: dict[int, EvalPoint] = field(default_factory=dict[int, EvalPoint])
    """Evaluations by step, those of earlier attempts likewise."""
    warned: set[StopReason] = field(default_factory=set[StopReason])
    """Guards that warned of this trial already, by the reason they would end it with."""
    guarded: int | None = None
    """Step of the evaluation that the guards saw last in this attempt."""

    def recall(self) -> None:
        """Take up what earlier attempts recorded up to the step that this one goes on from."""
        record = read_trial(self.folder.path)
        for row in record.evals:
            if row["step"] <= self.step:
                self.points[row["step"]] = point_of_row(row)
        profiles = read_profiles(self.folder.path, record.events)
        self.history += [
            _step_of_row(row, self.slot, profiles.get(row["step"]))
            for row in record.steps
            if row["step"] <= self.step
        ]
        self.warned |= {StopReason(w.guard) for w in record.warnings if w.step <= self.step}

    def advance(self, metrics: StepMetrics) -> None:
        """Take in a step."""
        self.step = metrics.step
        # As a later attempt would recall it, so that both see the same alarms.
        profile = None if metrics.profile is None else as_recorded(metrics.profile)
        self.history[-1:] = [lean(one) for one in self.history[-1:]]
        self.history.append(replace(metrics, profile=profile))

    def is_due(self) -> bool:
        """Whether this step calls for an evaluation that was not made: 0, every n, and the last."""
        every, last = self.spec.evaluate.every, self.spec.trainer.steps
        return self.step not in self.points and (self.step % every == 0 or self.step >= last)

    def ahead(self) -> Ahead | None:
        """The steps up to the next evaluation, which only a step that `StepWatch` names can cut short.

        None where the clock may end the trial after any step.
        """
        if self.spec.guards.wall is not None:
            return None
        every, last = self.spec.evaluate.every, self.spec.trainer.steps
        steps = min(every - self.step % every, last - self.step)
        return Ahead(max(1, steps), StepWatch.of(self.spec))

    def is_evaluated(self) -> bool:
        """Whether the weights as they are now were judged."""
        return self.step in self.points

    def take_evaluation(self, metrics: EvalMetrics) -> bool:
        """Take in an evaluation; true where its checkpoint is the best allowed one so far."""
        point = point_of(metrics)
        golds = [p.gold for p in self.points.values() if self._is_allowed(p)]
        self.points[point.step] = point
        return self._is_allowed(point) and point.gold > max(golds, default=-math.inf)

    def standings(self) -> dict[int, Standing]:
        """How the trial stood at each healthy evaluation, in the study's kl_unit.

        Where it breaks a limit on another gold it has no standing: no peers are pruned against what
        may not be chosen.
        """
        start = self._start()
        return {
            step: Standing(
                gold=point.gold,
                kl=point.kl(self.spec.kl_unit),
                gold_se=standard_error(point.gold_by_prompt) or 0.0,
            )
            for step, point in sorted(self.points.items())
            if point.is_healthy and (step == 0 or breaks_no_gold(point, self.spec.objective, start))
        }

    def step_alarms(self, now: float) -> list[Alarm]:
        """What the guards say after the latest step; ``now`` is on the loop's clock."""
        return step_alarms(self.spec, self.history, elapsed_s=now - self.started_at)

    def evaluation_alarms(self) -> list[Alarm]:
        """What the guards say of the evaluation at this step; nothing where there is none, or it was asked before."""
        if self.guarded == self.step or not self.is_evaluated():
            return []
        self.guarded = self.step
        return evaluation_alarms(
            self.spec, self.history, [point for _, point in sorted(self.points.items())]
        )

    def heed(self, alarms: Sequence[Alarm], observers: Sequence[Observer]) -> Verdict | None:
        """Record each guard's first warning and tell it; give the verdict that ends the trial, if one does."""
        for alarm in alarms:
            reason = alarm.verdict.reason
            if alarm.action is Action.WARN and reason not in self.warned:
                self.warned.add(reason)
                self.folder.append_warning(
                    reason, alarm.verdict.detail, alarm.first_step, alarm.step
                )
                for observer in observers:
                    observer.warned(self.asked.trial_number, alarm)
        return next((a.verdict for a in alarms if a.action is Action.STOP), None)

    def done(self) -> Verdict | None:
        """The end of a trial whose steps are all done and judged."""
        if self.step < self.spec.trainer.steps or not self.is_evaluated():
            return None
        return Verdict(StopReason.DONE, f"ran its course of {self.step} steps")

    def outcome(self, verdict: Verdict) -> TrialOutcome:
        """Say what the attempt comes to, ended for ``verdict``."""
        state = STATE_OF[verdict.reason]
        worth = self._worth(verdict)
        if state is TrialState.COMPLETE and worth.value is None:
            detail = f"{verdict.detail}; no evaluation of it is finite, so there is nothing to tell"
            verdict = Verdict(StopReason.ERROR, detail)
            state = STATE_OF[verdict.reason]
        is_complete = state is TrialState.COMPLETE
        is_told = is_complete or state is TrialState.PRUNED
        return TrialOutcome(
            trial_number=self.asked.trial_number,
            attempt=self.asked.attempt,
            verdict=verdict,
            steps_run=self.step,
            value=worth.value if is_complete else None,
            is_feasible=worth.is_feasible if is_complete else None,
            constraint=worth.constraint if is_told else None,
            best_step=worth.best_step if is_told else None,
        )

    def record(self, outcome: TrialOutcome, *, is_best_effort: bool) -> None:
        """Write the end into the trial's folder; ``is_best_effort``: where the disk takes no more, say so and go on."""
        try:
            self.folder.append_outcome(outcome)
        except DiskError as error:
            if not is_best_effort:
                raise
            _logger.warning(
                "trial %d: its end is in the storage only (%s)", outcome.trial_number, error
            )

    def _worth(self, verdict: Verdict) -> Worth:
        return judge_trial(
            list(self.points.values()),
            self.spec.objective,
            self.spec.kl_unit,
            self.step,
            self.spec.trainer.steps,
            diverged=verdict.reason is StopReason.DIVERGED,
        )

    def _is_allowed(self, point: EvalPoint) -> bool:
        return is_allowed(point, self.spec.objective, self.spec.kl_unit, self._start())

    def _start(self) -> EvalPoint | None:
        """The evaluation at step 0, where it is healthy."""
        point = self.points.get(0)
        return point if point is not None and point.is_healthy else None


def _step_of_row(row: Mapping[str, Any], slot: int, profile: TokenProfile | None) -> StepMetrics:
    """A recorded step; null (non-finite) becomes NaN."""

    def number(name: str) -> float:
        value = row.get(name)
        return float(value) if isinstance(value, int | float) else math.nan

    return StepMetrics(
        slot=slot,
        trial_number=int(row["trial"]),
        step=int(row["step"]),
        kl_token=number("kl/exact_token"),
        kl_seq=number("kl/exact_seq"),
        proxy=number("train/proxy_mean"),
        beta=number("ctrl/beta"),
        tokens=int(row.get("tokens/step") or 0),
        is_finite=True,
        values={name: number(name) for name in row if name in METRICS},
        profile=profile,
    )
