"""What a guard says: which one, whether it ends the trial, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kltune.trial.outcome import Verdict


class Action(StrEnum):
    """What a guard does when it fires."""

    STOP = "stop"
    """End the trial, with the guard's reason."""
    WARN = "warn"
    """Record and show it; the trial goes on."""
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Alarm:
    """A guard that fired after some step."""

    action: Action
    """Stop or warn."""
    verdict: Verdict
    """Reason and detail: the same string in log, tag and report."""
    step: int
    """Steps done when it fired."""
    first_step: int
    """Where the symptom began."""
