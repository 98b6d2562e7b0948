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
    clock.now = 300.0  # models load, a worker starts: no time of a step
    for slot in (0, 1):
        admit(progress, slot, slot)
    step(progress, 0, 1)
    for count in range(2, 11):
        clock.now += 1.0
        progress.stepped(StepMetrics(0, 0, count, 0.1, 1.4, 0.2, 0.1, 100, True, {}))
        assert progress.left_s is None, "not a trial's worth yet"
    for count in (1, 2):
        clock.now += 1.0
        progress.stepped(StepMetrics(1, 1, count, 0.1, 1.4, 0.2, 0.1, 100, True, {}))
    # 11 steps after the first one in 11 s; 8 steps of slot 1 and 2 trials of 10 are left.
    assert progress.left_s == pytest.approx(8 + 20)
    assert progress.tokens_per_s == pytest.approx(1200 / 311)


def test_trials_to_come_count_as_many_steps_as_the_ended_ones_took() -> None:
    clock = Clock()
    progress = Progress(scope(), clock)
    admit(progress, 0)
    step(progress, 0, 1)
    clock.now = 2.0
    progress.stepped(StepMetrics(0, 0, 2, 0.1, 1.4, 0.2, 0.1, 100, True, {}))
    progress.ended(TrialOutcome(0, 1, Verdict(StopReason.KL_LIMIT, ""), 2, None, None, None, None))
    assert progress.left_s == pytest.approx(3 * 2 * 2)


def test_earlier_sessions_count_as_trials_but_not_as_pace() -> None:
    clock = Clock()
    progress = Progress(scope(ended_before=2), clock)
    admit(progress, 2)
    step(progress, 2, 1)
    clock.now = 9.0
    for count in range(2, 11):
        progress.stepped(StepMetrics(0, 2, count, 0.1, 1.4, 0.2, 0.1, 100, True, {}))
    end(progress, 2, StopReason.DONE, 0.1)
    assert progress.num_ended == 3
    assert progress.left_s == pytest.approx(10.0)


def test_when_all_trials_are_done_nothing_is_left_to_be_said() -> None:
    clock = Clock()
    progress = Progress(scope(trials=1), clock)
    admit(progress, 0)
    step(progress, 0, 10)
    clock.now = 9.0
    end(progress, 0, StopReason.DONE, 0.1)
    assert progress.left_s is None


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
