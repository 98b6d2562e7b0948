"""What the ledger gives out: an attempt to run, and the best trial."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import optuna

from kltune.spec.trial import TrialSpec
from kltune.study.lives import is_fixed


@dataclass(frozen=True, slots=True)
class Asked:
    """One attempt of a trial, to be run now."""

    optuna_trial: optuna.Trial
    trial_number: int
    attempt: int
    """1 for the first attempt."""
    origin: str
    """``baseline:NAME``, ``zero``, ``noise:SEED``, ``sobol``, ``tpe`` or ``random``."""
    setting: TrialSpec
    resume_from: Path | None
    """Checkpoint of an earlier attempt."""

    @property
    def is_fixed(self) -> bool:
        """Whether it is a comparison arm, which peers never prune."""
        return is_fixed(self.origin)


@dataclass(frozen=True, slots=True)
class BestTrial:
    """The best feasible trial that is complete."""

    trial_number: int
    value: float
    setting: TrialSpec
