"""The mirror hears of trials that were admitted, judged and ended, and of how the study stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from kltune.guard.alarm import Action, Alarm
from kltune.launch.watching import MirrorObserver
from kltune.metrics.mirror import MlflowMirror
from kltune.spec.trial import TrialSpec
from kltune.study.observer import Admitted
from kltune.trial.outcome import StopReason, TrialOutcome, Verdict


class Recorder:
    def __init__(self) -> None:
        self.noticed: list[Path] = []
        self.logged: list[tuple[dict[str, float], int]] = []

    def notice(self, trial_folder: Path) -> None:
        self.noticed.append(trial_folder)

    def log_study(self, values: dict[str, float], step: int) -> None:
        self.logged.append((values, step))


def outcome(number: int, value: float | None, *, feasible: bool | None) -> TrialOutcome:
    verdict = Verdict(StopReason.DONE, "ran")
    return TrialOutcome(number, 1, verdict, 5, value, feasible, -1.0, 5)


def test_the_best_value_is_that_of_feasible_trials_only() -> None:
    recorder = Recorder()
    watcher = MirrorObserver(cast("MlflowMirror", cast("Any", recorder)))
    setting = TrialSpec(beta=0.0, learning_rate=1e-3)
    for number in (0, 1, 2):
        folder = Path(f"trials/{number}")
        watcher.admitted(Admitted(0, number, 1, "sobol", setting, 0, folder))
    watcher.ended(outcome(0, 0.5, feasible=True))
    watcher.ended(outcome(1, 0.9, feasible=False))
    watcher.ended(outcome(2, 0.4, feasible=True))
    assert [values for values, _ in recorder.logged] == [
        {"study/trials_ended": 1.0, "study/best_value": 0.5},
        {"study/trials_ended": 2.0, "study/best_value": 0.5},
        {"study/trials_ended": 3.0, "study/best_value": 0.5},
    ]
    assert recorder.noticed.count(Path("trials/1")) == 2


def test_the_mirror_hears_of_a_warning() -> None:
    recorder = Recorder()
    watcher = MirrorObserver(cast("MlflowMirror", cast("Any", recorder)))
    setting = TrialSpec(beta=0.0, learning_rate=1e-3)
    watcher.admitted(Admitted(0, 4, 1, "sobol", setting, 0, Path("trials/4")))
    alarm = Alarm(Action.WARN, Verdict(StopReason.TRUNCATION, "60 % cut"), 30, 25)
    watcher.warned(4, alarm)
    assert recorder.noticed == [Path("trials/4")] * 2
