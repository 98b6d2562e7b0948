"""Counts and seconds of a study in, what it cost and what was saved out: every number with its formula.

A *trial-step* is one training step of one trial. *Worker seconds* add up what each step and
evaluation says it took of the worker that ran it; wall time is the search's own, over all sessions.
What the record does not say is None, never a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kltune.report.trial_cost import Work
from kltune.trial.guard_words import STOPPED
from kltune.trial.outcome import StopReason

CUTS: Mapping[StopReason, str] = {StopReason.PRUNED: "pruned by peers", **STOPPED}
"""Endings before the last step that spared the rest of a trial on purpose."""


@dataclass(frozen=True, slots=True)
class Cut:
    """What one kind of early ending spared."""

    reason: StopReason
    trials: int
    steps: int
    """Trial-steps planned and not run."""
    seconds: float | None
    """Of a worker: for each trial its steps not run x its own mean step; None where a trial has none.
    The evaluations that were spared as well are not in it."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Trial-steps: planned = run + spared + failed_short."""

    trials: int
    """That ended, whatever their state."""
    planned: int
    """Trials x steps of the trainer."""
    run: int
    """That count, of these trials."""
    cuts: tuple[Cut, ...]
    failed_short: int
    """Not run because a trial failed for good, and no guard ended it: nothing was gained by it."""
    wasted: Work
    """Run for nothing: steps that a later attempt ran again, and all steps of trials that failed for good."""

    @property
    def spared(self) -> int:
        """Trial-steps that pruning and guards made unnecessary."""
        return sum(cut.steps for cut in self.cuts)

    @property
    def spared_s(self) -> float | None:
        """Worker seconds of these."""
        known = [cut.seconds for cut in self.cuts if cut.seconds is not None]
        return sum(known) if len(known) == len(self.cuts) else None


@dataclass(frozen=True, slots=True)
class Time:
    """Where the time went, in seconds."""

    wall_s: float | None
    """Of all searches that came to an end; loading and calibration are before it."""
    trainer_s: float | None
    """Of this with the trainer at work."""
    worker_s: float | None
    """Wall time x workers, session by session."""
    bookkeeping_frac: float | None
    """Optuna, MLflow, files and screen over wall time."""
    steps: Work
    """All steps of all trials, thrown away or not."""
    evaluations: Work
    phases: Mapping[str, float]
    """Worker seconds of the steps by the names in `trial_cost.PHASES`; empty where not on record."""

    @property
    def busy_s(self) -> float:
        """Worker seconds of all steps and evaluations."""
        return self.steps.seconds + self.evaluations.seconds

    @property
    def is_whole(self) -> bool:
        """Whether wall time covers all work: a session that crashed leaves its steps, but no wall time."""
        is_timed = not (self.steps + self.evaluations).untimed
        return self.worker_s is not None and is_timed and self.busy_s <= 1.02 * self.worker_s

    @property
    def train_wall_s(self) -> float | None:
        """Trainer seconds x steps' share of the worker seconds: the wall time of training alone."""
        if self.trainer_s is None or not self.is_whole or not self.steps.seconds:
            return None
        return self.trainer_s * self.steps.seconds / self.busy_s

    @property
    def wall_per_step_s(self) -> float | None:
        """Wall time of training / trial-steps run."""
        wall_s = self.train_wall_s
        return None if wall_s is None else wall_s / self.steps.rows


@dataclass(frozen=True, slots=True)
class Shared:
    """What running trials together gave, against one trial alone with all threads."""

    workers: int | None
    slots: int | None
    threads: int | None
    alone_step_s: float | None
    """Seconds per trial-step alone, as calibrated."""
    placed_step_s: float | None
    """Wall seconds per trial-step in the placement, as calibrated."""
    realised_step_s: float | None
    """Wall seconds per trial-step of the search."""

    @property
    def factor(self) -> float | None:
        """Alone / realised: above 1 is faster."""
        if self.alone_step_s is None or self.realised_step_s is None:
            return None
        return self.alone_step_s / self.realised_step_s

    @property
    def bound(self) -> int | None:
        """What workers of one slot each can give at most: their number.

        None where a bank has several slots: what it shares besides has a bound of its own, which is
        not on record.
        """
        return self.workers if self.workers == self.slots else None


@dataclass(frozen=True, slots=True)
class Limit:
    """Useful operations against what the machine can do."""

    peak_gflops: float | None
    """Fp32 matrix product with all threads, 1e9 operations per second, measured at the start."""
    gflop: float | None
    """Of all steps and evaluations."""
    uncounted: int
    """Steps and evaluations that don't say how many operations they took."""
    overall: float | None
    """gflop / (wall time x peak)."""
    training: float | None
    """gflop of the steps / (wall time of training x peak)."""


@dataclass(frozen=True, slots=True)
class FullTrial:
    """What a trial that runs its course costs."""

    steps: int
    evaluations: int
    seconds: float | None
    """Worker seconds: steps x mean step + evaluations x mean evaluation."""
    hundred_s: float | None
    """Wall time of 100 of them at this study's pace: 100 x seconds x wall time / worker seconds of
    all work."""


@dataclass(frozen=True, slots=True)
class Bill:
    """Money and energy by the user's own prices; None where no price was given."""

    energy_kwh: float | None
    money: float | None
    currency: str | None


@dataclass(frozen=True, slots=True)
class Accounting:
    """Everything that the study cost."""

    steps: Steps
    time: Time
    shared: Shared
    limit: Limit
    full_trial: FullTrial
    bill: Bill | None
