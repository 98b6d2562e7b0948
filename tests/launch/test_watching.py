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

    def notice(self, trial_folder: Path) -> None:
        self.noticed.append(trial_folder)


def outcome(number: int, value: float | None, *, feasible: bool | None) -> TrialOutcome:
    verdict = Verdict(StopReason.DONE, "ran")
    return TrialOutcome(number, 1, verdict, 5, value, feasible, -1.0, 5)


def test_the_mirror_hears_of_a_trial_that_was_admitted_and_of_its_end() -> None:
    recorder = Recorder()
    watcher = MirrorObserver(cast("MlflowMirror", cast("Any", recorder)))
    setting = TrialSpec(beta=0.0, learning_rate=1e-3)
    for number in (0, 1):
        folder = Path(f"trials/{number}")
        watcher.admitted(Admitted(0, number, 1, "sobol", setting, 0, folder))
    watcher.ended(outcome(1, 0.9, feasible=False))
    assert recorder.noticed == [Path("trials/0"), Path("trials/1"), Path("trials/1")]


def test_the_mirror_hears_of_a_warning() -> None:
    recorder = Recorder()
    watcher = MirrorObserver(cast("MlflowMirror", cast("Any", recorder)))
    setting = TrialSpec(beta=0.0, learning_rate=1e-3)
    watcher.admitted(Admitted(0, 4, 1, "sobol", setting, 0, Path("trials/4")))
    alarm = Alarm(Action.WARN, Verdict(StopReason.TRUNCATION, "60 % cut"), 30, 25)
    watcher.warned(4, alarm)
    assert recorder.noticed == [Path("trials/4")] * 2
