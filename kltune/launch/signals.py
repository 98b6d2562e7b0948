"""SIGINT and SIGTERM in, a reason to stop out: asked between steps, so that running trials are saved first."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from types import FrameType

from kltune.errors import ExitCode

INTERRUPT, TERMINATE, WALL = "interrupted", "terminated", "wall budget used up"

EXIT_CODES = {INTERRUPT: ExitCode.INTERRUPTED, TERMINATE: ExitCode.TERMINATED}
"""A wall budget that ended early is a normal end (design.md §6)."""


class StopRequest:
    """Remembers that the search should stop; called between steps, it says why."""

    def __init__(self, wall_s: float | None, on_signal: Callable[[str], None]) -> None:
        """``wall_s``: budget of this run; ``on_signal`` tells the person that it was heard."""
        self._until = None if wall_s is None else time.monotonic() + wall_s
        self._on_signal = on_signal
        self._reason: str | None = None

    def __call__(self) -> str | None:
        """The reason to stop now, if there is one."""
        if self._reason is None and self._until is not None and time.monotonic() >= self._until:
            self._reason = WALL
        return self._reason

    def limit(self, wall_s: float | None) -> None:
        """Stop after ``wall_s`` from now on, where that was not known before."""
        if wall_s is not None:
            self._until = time.monotonic() + wall_s

    def hear(self, number: int, _frame: FrameType | None) -> None:
        """Signal handler. A second one stops at once: the last checkpoints are what is kept."""
        if self._reason in EXIT_CODES:
            raise KeyboardInterrupt
        self._reason = INTERRUPT if number == signal.SIGINT else TERMINATE
        self._on_signal(self._reason)

    @contextmanager
    def listening(self) -> Generator[None]:
        """Hear SIGINT and SIGTERM inside; the handlers before are put back.

        In a thread beside the main one (a notebook's, a server's) Python allows no handlers: the host
        program keeps its own, and only the wall budget stops the search early.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        spare_forked_children()
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in before:
            signal.signal(number, self.hear)
        try:
            yield
        finally:
            for number, handler in before.items():
                # None: it was set by C code, and Python has no name for it.
                signal.signal(number, signal.SIG_DFL if handler is None else handler)


def ignored(_number: int, _frame: FrameType | None) -> None:
    """A handler that does nothing. Unlike SIG_IGN it is not handed on to programs that are started."""


@cache
def spare_forked_children() -> None:
    """Processes that a reward function forks end by SIGINT and SIGTERM as they would without us."""
    os.register_at_fork(after_in_child=_as_if_without_us)


def _as_if_without_us() -> None:
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    for number, handler in usual.items():
        now = signal.getsignal(number)
        if now is ignored or isinstance(getattr(now, "__self__", None), StopRequest):
            signal.signal(number, handler)
