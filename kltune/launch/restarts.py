"""Deaths of worker processes in, whether to start them again out; pure.

A trial may be to blame for a death: a reward that crashes its process crashes it again. So a trial
counts against a worker once, however often it dies there, and once it has died `MOST_LOST` times alone
in its process, where nobody else can have been to blame, none of these deaths counts any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from kltune.study.lives import MOST_LOST

RESTARTS: Final = 2
"""Deaths that a worker may have on its account and still be started again, in one session."""


class Restarts:
    """The account of each worker of a session."""

    def __init__(self) -> None:
        self._alone: Counter[int] = Counter()
        """Deaths of processes with this trial alone, in any worker."""
        self._charged: dict[int, list[int | None]] = {}
        """By worker: the trial that it died with, none where it is not known which one."""

    def note(self, worker: int, trials: Sequence[int]) -> bool:
        """Take in a death of ``worker`` with ``trials``; true where it counts against the worker."""
        account = self._charged.setdefault(worker, [])
        if len(trials) != 1:
            account.append(None)
            return True
        (trial,) = trials
        self._alone[trial] += 1
        times = self._alone[trial]
        if times == MOST_LOST:
            for charged in self._charged.values():
                charged[:] = [other for other in charged if other != trial]
        is_charged = times > MOST_LOST or (times < MOST_LOST and trial not in account)
        if is_charged:
            # Beyond, somebody goes on admitting what always dies: this must come to an end.
            account.append(None if times > MOST_LOST else trial)
        return is_charged

    def used(self, worker: int) -> int:
        """Deaths on the worker's account."""
        return len(self._charged.get(worker, ()))

    def may_restart(self, worker: int) -> bool:
        """Whether it is worth another start."""
        return self.used(worker) <= RESTARTS
