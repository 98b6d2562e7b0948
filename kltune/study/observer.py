"""Who watches a search: the screen and the tracker mirror. Watching never changes the search."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kltune.guard.alarm import Alarm
from kltune.metrics.record import EvalMetrics, StepMetrics
from kltune.spec.trial import TrialSpec
from kltune.trial.outcome import TrialOutcome


@dataclass(frozen=True, slots=True)
class Admitted:
    """A trial that starts or continues in a slot."""

    slot: int
    trial_number: int
    attempt: int
    origin: str
    """``baseline:NAME``, ``zero``, ``sobol``, ``tpe``, ``random``."""
    setting: TrialSpec
    step: int
    """Steps already done (above 0 for a resumed trial)."""
    folder: Path


class Observer(Protocol):
    """Called after the record of the same event is on disk."""

    def admitted(self, event: Admitted) -> None:
        """A trial entered a slot."""
        ...

    def stepped(self, metrics: StepMetrics) -> None:
        """A slot did one step."""
        ...

    def evaluated(self, metrics: EvalMetrics) -> None:
        """A slot was judged on the select prompts."""
        ...

    def warned(self, trial_number: int, alarm: Alarm) -> None:
        """A guard warned of a trial, which goes on; once for each guard and trial."""
        ...

    def ended(self, outcome: TrialOutcome) -> None:
        """A trial left its slot."""
        ...
