"""Search events in, the MLflow mirror told which trial's folder has news."""

from __future__ import annotations

from pathlib import Path

from kltune.guard.alarm import Alarm
from kltune.metrics.mirror import MlflowMirror
from kltune.metrics.record import EvalMetrics, StepMetrics
from kltune.study.observer import Admitted
from kltune.trial.outcome import TrialOutcome


class MirrorObserver:
    """A :class:`kltune.study.observer.Observer` that wakes the mirror; it never waits for it."""

    def __init__(self, mirror: MlflowMirror) -> None:
        """``mirror`` must be started."""
        self._mirror = mirror
        self._folders: dict[int, Path] = {}

    def admitted(self, event: Admitted) -> None:
        """A trial entered a slot."""
        self._folders[event.trial_number] = event.folder
        self._mirror.notice(event.folder)

    def stepped(self, metrics: StepMetrics) -> None:
        """Steps travel with the next evaluation: one batch for all of them."""

    def evaluated(self, metrics: EvalMetrics) -> None:
        """A slot was judged."""
        self._mirror.notice(self._folders[metrics.trial_number])

    def warned(self, trial_number: int, alarm: Alarm) -> None:
        """A guard warned of a trial."""
        del alarm  # the mirror reads it from the record
        self._mirror.notice(self._folders[trial_number])

    def ended(self, outcome: TrialOutcome) -> None:
        """A trial left its slot; how the study stands now, the mirror counts from the record."""
        self._mirror.notice(self._folders[outcome.trial_number])
