"""Ends of this member's trials in; out, on its screen: how many trials the other members have ended."""

from __future__ import annotations

from collections.abc import Callable

from kltune.guard.alarm import Alarm
from kltune.metrics.record import EvalMetrics, StepMetrics
from kltune.screen.progress import Progress
from kltune.study.observer import Admitted
from kltune.trial.outcome import STATE_OF, TrialOutcome, TrialState

_COUNTED = (TrialState.COMPLETE, TrialState.PRUNED)


class Company:
    """A :class:`kltune.study.observer.Observer` to be told before the screen, which shows what it finds."""

    def __init__(
        self, progress: Progress, num_ended: Callable[[], int], has_others: Callable[[], bool]
    ) -> None:
        """``num_ended``: trials of the study that are complete or pruned, by all members."""
        self._progress = progress
        self._num_ended = num_ended
        self._has_others = has_others
        self._own = 0

    def admitted(self, event: Admitted) -> None:
        """A trial entered a slot."""

    def stepped(self, metrics: StepMetrics) -> None:
        """A slot did one step."""

    def evaluated(self, metrics: EvalMetrics) -> None:
        """A slot was judged."""

    def warned(self, trial_number: int, alarm: Alarm) -> None:
        """A guard warned of a trial."""

    def ended(self, outcome: TrialOutcome) -> None:
        """A trial left its slot: count anew, unless this process was alone all the time."""
        self._own += STATE_OF[outcome.verdict.reason] in _COUNTED
        if self._progress.elsewhere or self._has_others():
            found = self._num_ended() - self._progress.scope.ended_before - self._own
            self._progress.elsewhere = max(0, found)
