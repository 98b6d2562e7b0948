"""A study folder of this member's own in, the trials of all members exchanged by an address out: no shared folder needed.

Each member writes its own folder, and a thread sends a trial's state after each evaluation and each end. A trial
that another member ran is brought here before it goes on. An outage stops nothing and loses nothing: what was
not sent is sent when the way is free, or by the next session.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kltune.errors import StudyError
from kltune.metrics.jsonl import read_json
from kltune.metrics.rows import CONFIG
from kltune.trial.bundle import fetch, send, snapshot, versions_of
from kltune.trial.disk import remove
from kltune.trial.exchange_files import (
    KEPT,
    attempt_of,
    is_sent,
    known_version,
    marks_of,
    names_of,
    note_version,
)
from kltune.trial.remote import Remote, RemoteTroubleError

ASIDE: Final = "set-aside"
"""In the study folder: trials as this member ran them, where another member's later attempt took their place."""

_SCRATCH: Final = ".exchange"
_FIRST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 60.0
_SLICE_S: Final = 0.2
"""Between two questions whether to stop, while an address is waited for."""
_MOST_TRIALS: Final = 100_000

_logger = logging.getLogger(__name__)


class Exchange:
    """Sends and brings the trials of one study."""

    def __init__(
        self,
        remote: Remote,
        study_path: Path,
        study_name: str,
        first_wait_s: float = _FIRST_WAIT_S,
    ) -> None:
        """``first_wait_s``: after the first failure; each further one waits twice as long, up to a minute."""
        self._remote = remote
        self._study_path = study_path
        self._name = study_name
        self._first_wait_s = first_wait_s
        self._waiting: dict[int, tuple[int, Path, dict[str, str]]] = {}
        """By trial: attempt, snapshot and digests; a later one takes the place of an earlier."""
        self._count = 0
        self._lock = threading.Condition()
        self._is_closing = False
        self._is_over = False
        self._is_sending = False
        self._thread: threading.Thread | None = None
        remove(study_path / _SCRATCH)

    def start(self) -> None:
        """Begin to send, first what an earlier session could not."""
        for number in self._unsent():
            self.notice(number)
        self._thread = threading.Thread(target=self._run, name="kltune-exchange", daemon=True)
        self._thread.start()

    def notice(self, number: int) -> None:
        """Send the trial as it is now, by and by; returns at once. A disk without room for the snapshot skips it."""
        folder = self._folder(number)
        with self._lock:
            self._count += 1
            into = self._study_path / _SCRATCH / f"{number:05d}-{self._count}"
        try:
            attempt = int(read_json(folder / CONFIG)["attempt"])
            files = snapshot(folder, names_of(folder), into)
        except (OSError, StudyError, KeyError, ValueError) as error:
            _logger.warning("trial %d is not sent now: %s", number, error)
            remove(into)
            return
        with self._lock:
            before = self._waiting.pop(number, None)
            self._waiting[number] = (attempt, into, files)
            self._lock.notify_all()
        if before is not None:
            remove(before[1])

    def bring(
        self, number: int, patience_s: float = 60.0, stop: Callable[[], object] = lambda: None
    ) -> bool:
        """See to it that the trial is here as its latest attempt left it; whether anything came.

        Waits up to ``patience_s`` seconds for the address; where that is not enough, the trial goes on from
        what is here.
        """
        until, wait = time.monotonic() + patience_s, self._first_wait_s
        while True:
            try:
                return self._bring(number)
            except (RemoteTroubleError, OSError) as error:
                left = until - time.monotonic()
                if left <= 0 or stop() is not None:
                    _logger.warning(
                        "trial %d goes on from what is here, since its record can't be brought: %s",
                        number,
                        error,
                    )
                    return False
            again = time.monotonic() + min(wait, left)
            while (pause := again - time.monotonic()) > 0 and stop() is None:
                time.sleep(min(pause, _SLICE_S))
            wait = min(2 * wait, _LONGEST_WAIT_S)

    def bring_all(self, patience_s: float = 120.0) -> list[int]:
        """Bring every trial of other members that is newer there, for the report; the numbers of those that came.

        Trials that this member runs now must not be among them: call it when it runs none.
        """
        try:
            numbers = [int(n) for n in self._remote.names(f"{self._name}/trials") if n.isdecimal()]
        except RemoteTroubleError as error:
            _logger.warning("the trials of other members can't be brought: %s", error)
            return []
        until = time.monotonic() + patience_s
        return [
            number
            for number in numbers
            if number < _MOST_TRIALS and self.bring(number, max(0.0, until - time.monotonic()))
        ]

    def close(self, timeout_s: float = 15.0) -> list[int]:
        """Send what is left, for at most ``timeout_s``; the trials that were not sent, which the next session sends."""
        until = time.monotonic() + timeout_s
        with self._lock:
            self._is_closing = True
            self._lock.notify_all()
            while (self._waiting or self._is_sending) and (left := until - time.monotonic()) > 0:
                self._lock.wait(left)
            self._is_over = True
        if self._thread is not None:
            self._thread.join(max(0.0, until - time.monotonic()))
        unsent = self._unsent()
        if unsent:
            _logger.warning(
                "%d trials are not at %s yet; the same command again sends them",
                len(unsent),
                self._remote.shown,
            )
        return unsent

    def _run(self) -> None:
        wait, is_told = self._first_wait_s, False
        while True:
            with self._lock:
                while not self._waiting and not self._is_closing:
                    self._lock.wait()
                if self._is_over or not self._waiting:
                    return
                number, (attempt, folder, files) = next(iter(self._waiting.items()))
                del self._waiting[number]
                self._is_sending = True
            try:
                self._send(number, attempt, folder, files)
            except (RemoteTroubleError, OSError) as error:
                self._put_back(number, attempt, folder, files)
                if not is_told:
                    _logger.warning("the record waits for %s: %s", self._remote.shown, error)
                is_told = True
                with self._lock:
                    self._is_sending = False
                    self._lock.wait_for(lambda: self._is_closing, wait)
                    if self._is_closing:
                        wait = self._first_wait_s
                if self._is_closing:
                    time.sleep(wait)
                wait = min(2 * wait, _LONGEST_WAIT_S)
                continue
            if is_told:
                _logger.warning(
                    "%s can be reached again; the record is being sent", self._remote.shown
                )
            wait, is_told = self._first_wait_s, False
            remove(folder)
            with self._lock:
                self._is_sending = False
                self._lock.notify_all()

    def _send(self, number: int, attempt: int, folder: Path, files: dict[str, str]) -> None:
        newest = versions_of(self._remote, self._place(number))[-1:]
        if newest and newest[0].attempt > attempt:
            return  # another member went on with it meanwhile
        marks = marks_of(folder)
        version = send(self._remote, self._place(number), attempt, folder, files)
        with contextlib.suppress(OSError):
            note_version(self._folder(number), version, marks)

    def _put_back(self, number: int, attempt: int, folder: Path, files: dict[str, str]) -> None:
        with self._lock:
            if number in self._waiting:
                remove(folder)  # a later state waits already
            else:
                self._waiting[number] = (attempt, folder, files)

    def _bring(self, number: int) -> bool:
        place, folder = self._place(number), self._folder(number)
        newest = versions_of(self._remote, place)[-1:]
        here, known = attempt_of(folder), known_version(folder)
        if not newest or newest[0].attempt < here:
            return False
        if newest[0].attempt == here and (known is None or known >= newest[0]):
            return False  # it is this member's own attempt
        scratch = self._study_path / _SCRATCH / f"bring-{number:05d}"
        version = fetch(self._remote, place, scratch)
        if version is None:
            return False
        with contextlib.suppress(OSError):
            (scratch / KEPT).write_bytes((folder / KEPT).read_bytes())
        note_version(scratch, version, marks_of(scratch))
        if folder.exists():
            self._set_aside(number, here)
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch.rename(folder)
        return True

    def _set_aside(self, number: int, attempt: int) -> None:
        folder = self._folder(number)
        if number not in self._unsent():
            old = self._study_path / _SCRATCH / f"old-{number:05d}"
            remove(old)
            old.parent.mkdir(parents=True, exist_ok=True)
            folder.rename(old)
            remove(old)
            return
        # Nobody else has these rows.
        aside = self._study_path / ASIDE / f"{number:05d}-{attempt}-{time.time_ns()}"
        aside.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(aside)
        _logger.warning(
            "trial %d: what was not sent of attempt %d is kept in %s", number, attempt, aside
        )

    def _unsent(self) -> list[int]:
        """Trials here whose files are not those that were sent or brought last."""
        folders = self._study_path.glob(f"trials/*/{CONFIG}")
        names = [path.parent.name for path in folders if path.parent.name.isdecimal()]
        return sorted(int(name) for name in names if not is_sent(self._folder(int(name))))

    def _folder(self, number: int) -> Path:
        return self._study_path / "trials" / f"{number:05d}"

    def _place(self, number: int) -> str:
        return f"{self._name}/trials/{number:05d}"
