"""Running trials in, heartbeats in the storage out: ask and tell send none themselves.

A trial that never recorded a heartbeat is never found stale by other workers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from kltune.study.storage import HEARTBEAT_S, OpenStudy


class Lease:
    """Keeps this worker's trials alive in the eyes of others."""

    def __init__(self, opened: OpenStudy, clock: Callable[[], float] = time.monotonic) -> None:
        self._opened = opened
        self._clock = clock
        self._renewed_at = clock()

    def take(self, optuna_number: int) -> None:
        """Record the first heartbeat of a trial that was just asked for."""
        self._opened.storage.record_heartbeat(self._opened.trial_id(optuna_number))

    def renew(self, optuna_numbers: Iterable[int]) -> bool:
        """Record a heartbeat of each running trial if one is due; say whether it was.

        Between heartbeats this reads the clock and nothing else.
        """
        now = self._clock()
        if now - self._renewed_at < HEARTBEAT_S / 2:
            return False
        self._renewed_at = now
        for number in optuna_numbers:
            self.take(number)
        return True
