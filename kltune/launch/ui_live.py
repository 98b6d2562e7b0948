"""A study folder in, its report as it is now out: drawn anew when the record changed, off the main thread.

Watching must not slow the sweep: nothing is drawn while nobody looks, and drawing takes a fifth of one
core at most.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kltune.report.build import LivePage

Render = Callable[[Path], LivePage]
Fingerprint = frozenset[tuple[str, int, int, int]]
"""Name, size, time and number of files."""

LOOK_S = 1.0
"""Between two looks at the record while somebody asks."""
WATCHED_S = 20.0
"""How long after a request somebody is taken to be there: the page asks every 5 s."""
REST_S = 3.0
"""At least this long between two drawings, and four times the processor time of the last, at most a minute."""
_LONGEST_REST_S = 60.0
QUIET_S = 30.0
"""A study that is over is final once its record has not changed for this long."""
_PATIENCE_S = 3.0
_FIRST_PATIENCE_S = 120.0
_LAST_PATIENCE_S = 1.0
_UNREAD = frozenset({"artifacts", "checkpoints", "replays", ".lock"})
_UNREAD_STARTS = ("mlflow", ".mlflow", "report.", ".report.")
HEAD = "<head>"


@dataclass(frozen=True, slots=True)
class Version:
    """One drawing of the report."""

    html: bytes
    version: str
    is_over: bool
    record: Fingerprint
    """Of the record that it was drawn from."""


class LiveReport:
    """The latest drawing of a study's report; a thread of its own draws. To be closed."""

    def __init__(
        self, study_path: Path, render: Render, on_error: Callable[[str], None] | None = None
    ) -> None:
        """Begin to draw; ``on_error`` hears why it could not be, once for each reason."""
        self._study_path = study_path
        self._render = render
        self._on_error = on_error
        self._state = threading.Condition()
        self._latest: Version | None = None
        self._error: str | None = None
        self._looks_begun = self._looks_done = 0
        self._asked_at = time.monotonic()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="kltune-live", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Draw no more. A drawing in hand is left behind: its thread ends with the process at the latest."""
        with self._state:
            self._is_closed = True
            self._state.notify_all()
        self._thread.join(_LAST_PATIENCE_S)

    def page(self) -> Version | None:
        """The report as the record is now, or a few seconds ago; None where it can't be drawn (see `error`)."""
        self._ask()
        with self._state:
            look = self._looks_begun + 1  # one that is under way may have missed the last change
            patience_s = _PATIENCE_S if self._latest is not None else _FIRST_PATIENCE_S
            self._state.wait_for(lambda: self._looks_done >= look or self._is_closed, patience_s)
            return self._latest

    def version(self) -> tuple[str, bool]:
        """Name of the latest drawing (empty before the first), and whether none is to be expected after it."""
        self._ask()
        with self._state:
            latest = self._latest
        if latest is None:
            return "", False
        return latest.version, latest.is_over and self._is_quiet(latest)

    def _is_quiet(self, latest: Version) -> bool:
        """Whether the drawing is of the record as it is, and that has not changed for a while."""
        record = fingerprint(self._study_path)
        changed_ns = max((time_ns for _, _, time_ns, _ in record), default=0)
        return record == latest.record and time.time() - changed_ns / 1e9 >= QUIET_S

    def error(self) -> str | None:
        """Why the last drawing failed, if it did."""
        with self._state:
            return self._error

    def _ask(self) -> None:
        with self._state:
            self._asked_at = time.monotonic()
            self._state.notify_all()

    def _work(self) -> None:
        drawn_from: Fingerprint | None = None
        not_before = 0.0
        while self._begin_look():
            record = fingerprint(self._study_path)
            if record != drawn_from and time.monotonic() >= not_before:
                begin = time.thread_time()
                drawn_from = record if self._draw(record) else None
                rest_s = min(_LONGEST_REST_S, 4 * (time.thread_time() - begin))
                not_before = time.monotonic() + max(REST_S, rest_s)
            with self._state:
                self._looks_done = self._looks_begun
                self._state.notify_all()

    def _begin_look(self) -> bool:
        """Wait until it is time to look at the record again; False when it never will be."""
        with self._state:
            seen = self._asked_at
            if self._looks_begun:
                # At once for a new request, else at the next tick; not at all while nobody is there.
                self._state.wait_for(lambda: self._is_closed or self._asked_at > seen, LOOK_S)
                self._state.wait_for(
                    lambda: self._is_closed or time.monotonic() - self._asked_at < WATCHED_S
                )
            self._looks_begun += 1
            return not self._is_closed

    def _draw(self, record: Fingerprint) -> bool:
        try:
            page = self._render(self._study_path)
        except Exception as error:  # noqa: BLE001 - a record in any state; the next look may find it whole
            self._note(f"{type(error).__name__}: {error}")
            return False
        latest = _versioned(page, record)
        with self._state:
            self._latest, self._error = latest, None
        return True

    def _note(self, why: str) -> None:
        with self._state:
            is_new = why != self._error
            self._error = why
        if is_new and self._on_error is not None:
            self._on_error(why)


def fingerprint(study_path: Path) -> Fingerprint:
    """All files that the report may read; equal while the record is."""
    return frozenset(_files(study_path))


def _files(folder: Path) -> list[tuple[str, int, int, int]]:
    found: list[tuple[str, int, int, int]] = []
    left = [os.fspath(folder)]
    while left:
        try:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    _note_entry(entry, left, found)
        except OSError:  # gone meanwhile, or not ours to read: the drawing will say so
            continue
    return found


def _note_entry(
    entry: os.DirEntry[str], left: list[str], found: list[tuple[str, int, int, int]]
) -> None:
    if entry.name in _UNREAD or entry.name.startswith(_UNREAD_STARTS):
        return
    if entry.is_dir(follow_symlinks=False):
        left.append(entry.path)
        return
    # -shm is written by readers too, ourselves among them.
    if entry.name.endswith((".tmp", "-shm")):
        return
    try:
        facts = entry.stat()
    except OSError:  # a broken link
        return
    found.append((entry.path, facts.st_size, facts.st_mtime_ns, facts.st_ino))


def _versioned(page: LivePage, record: Fingerprint) -> Version:
    """Name the drawing by its text, and write the name into it: the page then knows which one it is."""
    text = page.html.encode()
    version = hashlib.sha256(text).hexdigest()[:16]
    mark = f'{HEAD}<meta name="kltune-version" content="{version}">'.encode()
    return Version(text.replace(HEAD.encode(), mark, 1), version, page.is_over, record)
