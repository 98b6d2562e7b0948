"""One attempt of a trial in a slot: what was measured so far in, what is due and what it is worth out."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kltune.guard.judge import StepWatch, judge_steps
from kltune.metrics.record import EvalMetrics, StepMetrics
from kltune.spec.study import StudySpec
from kltune.study.ledger import Asked
from kltune.study.pruner import Standing
from kltune.trainer.protocol import Ahead
from kltune.trial.folder import TrialFolder
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
from kltune.trial.record import read_trial


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
    recent: deque[StepMetrics] = field(default_factory=deque[StepMetrics])
    """The latest steps, as many as a guard looks back on."""
    points: dict[int, EvalPoint] = field(default_factory=dict[int, EvalPoint])
    """Evaluations by step, those of earlier attempts up to the checkpoint included."""

    def recall(self) -> None:
        """Take up what earlier attempts recorded up to the step that this one goes on from."""
        record = read_trial(self.folder.path)
        for row in record.evals:
            if row["step"] <= self.step:
                self.points[row["step"]] = point_of_row(row)
        for row in record.steps:
            if row["step"] <= self.step:
                self._remember(_step_of_row(row, self.slot))

    def advance(self, metrics: StepMetrics) -> None:
        """Take in a step."""
        self.step = metrics.step
        self._remember(metrics)

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
        return Ahead(max(1, steps), StepWatch(self.spec.kl_guard, self.spec.kl_unit))

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

    def guard(self, now: float) -> Verdict | None:
        """What the guards say after the latest step; ``now`` is on the loop's clock."""
        return judge_steps(
            list(self.recent),
            self.spec.kl_guard,
            self.spec.kl_unit,
            elapsed_s=now - self.started_at,
            wall_s=self.spec.guards.wall,
        )

    def is_done(self) -> bool:
        """Whether all steps are done and judged."""
        return self.step >= self.spec.trainer.steps and self.is_evaluated()

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

    def _remember(self, metrics: StepMetrics) -> None:
        guard = self.spec.kl_guard
        self.recent.append(metrics)
        while len(self.recent) > (1 if guard is None else guard.patience):
            self.recent.popleft()


def _step_of_row(row: Mapping[str, Any], slot: int) -> StepMetrics:
    """A recorded step, as far as the guards look at it; null (non-finite) becomes NaN."""

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
        values={},
    )
