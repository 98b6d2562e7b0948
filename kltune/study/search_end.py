"""How a search ended, and what its time went into."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SearchEnd:
    """How a search ended."""

    reason: str | None
    """Why it stopped early; none when the budget is used."""
    trials_ended: int
    """Trials that this session told as complete, pruned or failed; interrupted ones go on later."""
    wall_s: float
    trainer_s: float
    """Seconds in the bank: training, evaluating, saving."""
    waiting_s: float = 0.0
    """Seconds with nothing to run, while the trials of other members might still have to go on here."""

    @property
    def bookkeeping_s(self) -> float:
        """Seconds outside the bank, other than waiting: Optuna, files, trackers, screen."""
        return self.wall_s - self.waiting_s - self.trainer_s
