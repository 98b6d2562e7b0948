from __future__ import annotations

from pathlib import Path

import pytest

from kltune.guard.alarm import Action, Alarm
from kltune.metrics.record import StepMetrics
from kltune.screen.progress import RECENT, Progress, Scope
from kltune.spec.penalty import Penalty
from kltune.spec.trial import BetaUnit, KLUnit, TrialSpec
from kltune.study.observer import Admitted
from kltune.trial.outcome import StopReason, TrialOutcome, Verdict

SETTING = TrialSpec(beta=0.1, penalty=Penalty.K2_LOSS, learning_rate=1e-3)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def scope(**changes: object) -> Scope:
    fields = {
        "name": "kitchen",
        "trials": 4,
        "steps": 10,
        "kl_unit": KLUnit.TOKEN,
        "beta_unit": BetaUnit.REWARD,
    }
    return Scope(**{**fields, **changes})  # type: ignore[arg-type]


def admit(progress: Progress, number: int, slot: int = 0, step: int = 0) -> None:
    progress.admitted(Admitted(slot, number, 1, "sobol", SETTING, step, Path()))


def step(progress: Progress, number: int, count: int, slot: int = 0) -> None:
    for n in range(1, count + 1):
        progress.stepped(StepMetrics(slot, number, n, 0.1, 1.4, 0.2, 0.1, 100, True, {}))


def end(
    progress: Progress,
    number: int,
    reason: StopReason,
    value: float | None = None,
    feasible: bool = True,
) -> None:
    verdict = Verdict(reason, "why")
    progress.ended(TrialOutcome(number, 1, verdict, 10, value, feasible, -0.1, 10))


def test_time_left_follows_the_measured_pace() -> None:
    clock = Clock()
    progress = Progress(scope(), clock)
    assert progress.left_s is None
    admit(progress, 0)
    step(progress, 0, 5)
    clock.now = 10.0  # 2 s a step; 5 steps of this trial and 3 trials of 10 are left
    assert progress.left_s == pytest.approx((5 + 30) * 2)
    assert progress.tokens_per_s == pytest.approx(50)


def test_trials_to_come_count_as_many_steps_as_the_ended_ones_took() -> None:
    clock = Clock()
    progress = Progress(scope(), clock)
    admit(progress, 0)
    step(progress, 0, 2)
    progress.ended(TrialOutcome(0, 1, Verdict(StopReason.KL_LIMIT, ""), 2, None, None, None, None))
    clock.now = 4.0
    assert progress.left_s == pytest.approx(3 * 2 * 2)


def test_earlier_sessions_count_as_trials_but_not_as_pace() -> None:
    clock = Clock()
    progress = Progress(scope(ended_before=3), clock)
    admit(progress, 3)
    step(progress, 3, 5)
    clock.now = 5.0
    assert progress.num_ended == 3
    assert progress.left_s == pytest.approx(5.0)


def test_the_best_is_feasible_and_complete() -> None:
    progress = Progress(scope(best_before=(0, 0.5)), Clock())
    end(progress, 1, StopReason.DONE, value=0.9, feasible=False)
    end(progress, 2, StopReason.PRUNED, value=0.9)
    end(progress, 3, StopReason.DONE, value=0.4)
    assert progress.best == (0, 0.5)
    end(progress, 4, StopReason.KL_LIMIT, value=0.6)
    assert progress.best == (4, 0.6)


def test_an_interrupted_trial_has_not_ended_for_good() -> None:
    progress = Progress(scope(), Clock())
    admit(progress, 0)
    end(progress, 0, StopReason.INTERRUPTED)
    assert progress.num_ended == 0
    assert progress.slots == {}


def test_only_the_last_endings_stay_in_sight() -> None:
    progress = Progress(scope(), Clock())
    for number in range(RECENT + 2):
        end(progress, number, StopReason.DONE, value=0.1)
    assert [o.trial_number for o in progress.recent] == list(range(2, RECENT + 2))


def test_warnings_stay_in_sight_as_long_as_their_trial_runs() -> None:
    progress = Progress(scope(), Clock())
    for number in (1, 2):
        admit(progress, number, slot=number)
        for guard in (StopReason.TRUNCATION, StopReason.REPETITION, StopReason.LOCAL_KL):
            progress.warned(number, Alarm(Action.WARN, Verdict(guard, "seen"), 5, 3))
    assert len(progress.warnings) == RECENT
    end(progress, 2, StopReason.DONE, 0.5)
    assert [number for number, _ in progress.warnings] == [1]
