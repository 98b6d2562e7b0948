"""Why a trial ended, and what came out of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kltune.masking import redact


class StopReason(StrEnum):
    """The one reason for which a trial ended (design.md §3, table of endings)."""

    DONE = "done"
    KL_LIMIT = "kl_limit"
    KL_JUMP = "kl_jump"
    NEGATIVE_KL = "negative_kl"
    STALLED = "stalled"
    PSEUDO_EXPLOSION = "pseudo_explosion"
    GOLD_DROP = "gold_drop"
    ENTROPY_COLLAPSE = "entropy_collapse"
    REPETITION = "repetition"
    LENGTH_COLLAPSE = "length_collapse"
    LENGTH_GROWTH = "length_growth"
    TRUNCATION = "truncation"
    LOCAL_KL = "local_kl"
    PROXY_SPREAD = "proxy_spread"
    WALL_CLOCK = "wall_clock"
    DIVERGED = "diverged"
    PRUNED = "pruned"
    ERROR = "error"
    OUT_OF_MEMORY = "out_of_memory"
    DISK = "disk"
    INTERRUPTED = "interrupted"


class TrialState(StrEnum):
    """What a trial is now, in the words of Optuna."""

    RUNNING = "running"
    COMPLETE = "complete"
    PRUNED = "pruned"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


STATE_OF: dict[StopReason, TrialState] = {
    StopReason.DONE: TrialState.COMPLETE,
    StopReason.KL_LIMIT: TrialState.COMPLETE,
    StopReason.KL_JUMP: TrialState.COMPLETE,
    StopReason.NEGATIVE_KL: TrialState.FAILED,
    StopReason.STALLED: TrialState.COMPLETE,
    StopReason.PSEUDO_EXPLOSION: TrialState.COMPLETE,
    StopReason.GOLD_DROP: TrialState.COMPLETE,
    StopReason.ENTROPY_COLLAPSE: TrialState.COMPLETE,
    StopReason.REPETITION: TrialState.COMPLETE,
    StopReason.LENGTH_COLLAPSE: TrialState.COMPLETE,
    StopReason.LENGTH_GROWTH: TrialState.COMPLETE,
    StopReason.TRUNCATION: TrialState.COMPLETE,
    StopReason.LOCAL_KL: TrialState.COMPLETE,
    StopReason.PROXY_SPREAD: TrialState.COMPLETE,
    StopReason.WALL_CLOCK: TrialState.COMPLETE,
    StopReason.DIVERGED: TrialState.COMPLETE,
    StopReason.PRUNED: TrialState.PRUNED,
    StopReason.ERROR: TrialState.FAILED,
    StopReason.OUT_OF_MEMORY: TrialState.FAILED,
    StopReason.DISK: TrialState.FAILED,
    StopReason.INTERRUPTED: TrialState.INTERRUPTED,
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """A guard's decision and the numbers behind it: the same string in log, tag and report."""

    reason: StopReason
    detail: str
    """Without secrets: the words of an error are among those that end up here."""

    def __post_init__(self) -> None:
        """Hide secrets once, before the words go to record, storage, tracker and report."""
        object.__setattr__(self, "detail", redact(self.detail))


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """The end of one attempt of a trial."""

    trial_number: int
    attempt: int
    verdict: Verdict
    steps_run: int
    value: float | None
    """What Optuna maximises; none where there is nothing to tell."""
    is_feasible: bool | None
    """Whether the objective's KL limit is respected; none where the trial was pruned or failed."""
    constraint: float | None
    """At most 0 when feasible (design.md §3); none where nothing is told."""
    best_step: int | None
    """Step of the checkpoint that the value belongs to."""
