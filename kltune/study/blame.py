"""A fault of the bank and the attempts in its slots in; which of them end, and as what, out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kltune.errors import OutOfMemoryFault, SlotsLostFault, TrialFault
from kltune.study.attempt import Attempt
from kltune.study.ledger import Ledger
from kltune.trial.outcome import StopReason, Verdict


@dataclass(frozen=True, slots=True)
class Blamed:
    """An attempt that a fault ends."""

    attempt: Attempt
    verdict: Verdict
    may_retry: bool


def blame(fault: TrialFault, running: Mapping[int, Attempt], ledger: Ledger) -> list[Blamed]:
    """The attempts that the bank names; the others are untouched. Raises ``fault`` where it names none."""
    named = [running[slot] for slot in fault.slots if slot in running]
    if not named:
        raise fault
    if isinstance(fault, SlotsLostFault):
        is_alone = len(fault.slots) == 1
        verdicts = [ledger.judge_lost(a.asked, str(fault), is_alone=is_alone) for a in named]
        return [
            Blamed(attempt, verdict, verdict.reason is StopReason.INTERRUPTED)
            for attempt, verdict in zip(named, verdicts, strict=True)
        ]
    reason, detail = StopReason.ERROR, str(fault)
    if isinstance(fault, OutOfMemoryFault):
        reason = StopReason.OUT_OF_MEMORY
        if (count := len(running)) > 1:
            # Room is made by one trial less; that one has not failed, and goes on later.
            named, reason = named[-1:], StopReason.INTERRUPTED
            detail = (
                f"out of memory with {count} trials at once; going on with {count - 1} ({fault})"
            )
    return [Blamed(attempt, Verdict(reason, detail), fault.is_retried) for attempt in named]


def words(error: BaseException) -> str:
    """The error's kind, and what it says if it says anything."""
    return ": ".join(filter(None, (type(error).__name__, str(error))))


def is_memory(error: BaseException) -> bool:
    """Whether it was for lack of memory."""
    return isinstance(error, MemoryError) or "out of memory" in str(error).lower()
