"""Attempts that this process runs in, signs of life in the storage out: by a thread, however long a step takes.

Each sign is a number that grows (`ATTR_LEASE`), beside Optuna's own heartbeat. The same thread watches the
signs of the other members, so that it is known who is gone by the time that a slot is free.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from kltune.errors import KltuneError
from kltune.study import crew
from kltune.study.crew import Membership
from kltune.study.holder import this_machine
from kltune.study.lives import ATTR_LEASE
from kltune.study.stale import LEASE_S, SILENT, VARIABLE, Watch, lease_seconds
from kltune.study.storage import OpenStudy

__all__ = ("LEASE_S", "SILENT", "STORAGE_ERRORS", "VARIABLE", "Lease", "lease_seconds")

STORAGE_ERRORS: Final = (
    optuna.exceptions.StorageInternalError,
    SQLAlchemyError,
    KltuneError,
    OSError,
)
"""What a storage that can't be reached raises, here or after patience (kltune.study.patient)."""
_END_S: Final = 5.0
"""Seconds that the end waits for a thread that may hang in a storage."""

_logger = logging.getLogger(__name__)


class Lease:
    """Keeps this process's trials alive in the eyes of others, and an eye on theirs."""

    def __init__(
        self,
        opened: OpenStudy,
        membership: Membership | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``membership``: none where no other process may work in the study."""
        self.seconds = lease_seconds(os.environ)
        self._opened = opened
        self._membership = membership
        self._clock = clock
        self._watch = Watch(self.seconds, clock)
        self._held: dict[int, int] = {}
        """Optuna number by the key that the storage has for it."""
        self._lost: set[int] = set()
        self._beat = 0
        self._renewed_at = clock()
        self._is_over = threading.Event()

    def sign(self) -> dict[str, Any]:
        """What a lease says now."""
        member = None if self._membership is None else self._membership.member.id
        return {
            "member": member,
            "machine": this_machine(),
            "pid": os.getpid(),
            "beat": self._beat,
            "lease_s": self.seconds,
        }

    def take(self, optuna_number: int) -> None:
        """Hold a trial that was just asked for, and send Optuna's first heartbeat of it."""
        trial_id = self._opened.trial_id(optuna_number)
        self._opened.storage.record_heartbeat(trial_id)
        self._held[optuna_number] = trial_id

    def drop(self, optuna_number: int) -> None:
        """Let go of a trial that has ended."""
        self._held.pop(optuna_number, None)
        self._lost.discard(optuna_number)

    def is_lost(self, optuna_number: int) -> bool:
        """Whether someone else has ended the trial, as far as this process has noticed."""
        return optuna_number in self._lost

    def is_fresh(self) -> bool:
        """Whether nobody can have taken this process for dead yet."""
        return self._clock() - self._renewed_at < self.seconds

    def renew(self) -> None:
        """Give one sign of life for each trial that is held, and look at those of the others."""
        begun = self._clock()
        self._beat += 1
        sign = self.sign()
        for number, trial_id in list(self._held.items()):
            try:
                self._opened.storage.record_heartbeat(trial_id)
                self._opened.storage.set_trial_user_attr(trial_id, ATTR_LEASE, sign)
            except UpdateFinishedTrialError:
                if number in self._held:  # else its own end came in between
                    self._lost.add(number)
        self._renewed_at = begun
        if self._membership is not None:
            self._membership.touch()
            self._look()

    def is_dead(self, trial: FrozenTrial) -> bool:
        """Whether the member that runs the trial is gone: its process here, or its signs everywhere."""
        lease: Mapping[str, Any] = trial.user_attrs.get(ATTR_LEASE) or {}
        member, machine = lease.get("member"), lease.get("machine")
        if self._membership is not None and member == self._membership.member.id:
            return False
        if isinstance(member, str) and isinstance(machine, str):
            alive = crew.is_member_alive(self._opened.path, member, machine)
            if alive is False:
                return True
        patience = SILENT * max(self.seconds, float(lease.get("lease_s", 0.0)))
        return self._watch.unchanged_s(trial.number, _beat_of(trial)) >= patience

    def owner(self, trial: FrozenTrial) -> str | None:
        """The member that runs the trial; none where no lease says so."""
        member = (trial.user_attrs.get(ATTR_LEASE) or {}).get("member")
        return member if isinstance(member, str) else None

    @contextmanager
    def kept(self) -> Generator[None]:
        """Renew in a thread of its own while the block runs."""
        self._is_over.clear()
        thread = threading.Thread(target=self._run, name="kltune lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            thread.join(_END_S)

    def _run(self) -> None:
        is_silent = False
        while not self._is_over.wait(self.seconds / 2):
            try:
                self.renew()
                is_silent = False
            except STORAGE_ERRORS as error:
                if not is_silent:
                    _logger.warning("no sign of life could be given; trying on (%s)", error)
                is_silent = True
        self._opened.storage.remove_session()

    def _look(self) -> None:
        running = self._opened.optuna_study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        others = [trial for trial in running if trial.number not in self._held]
        self._watch.look({trial.number: _beat_of(trial) for trial in others})


def _beat_of(trial: FrozenTrial) -> tuple[object, ...]:
    """What changes with every sign."""
    lease: Mapping[str, Any] = trial.user_attrs.get(ATTR_LEASE) or {}
    return (lease.get("member"), lease.get("pid"), lease.get("beat"))
