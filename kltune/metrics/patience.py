"""A question to a server in, its answer out, or an outage within a bounded time.

A timeout of HTTP counts from the last byte, and looking up a name has none, so a server that answers
byte by byte, or a name service that hangs, would hold its caller for ever. Each question is asked in a
thread of its own that is left behind when its time is over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from kltune.metrics.outage import TrackerOutage

T = TypeVar("T")
U = TypeVar("U")

ANSWER_S: Final = 15.0
"""Longest wait for one answer."""
UPLOAD_S: Final = 60.0
"""Longest wait for one file to arrive, or for a new database to be made."""
_MOST_LATE: Final = 8
"""Threads that may be left behind at once; further questions fail until one of them ends."""


class Patience:
    """Asks, and says when there was an answer last."""

    def __init__(self, *, is_bounded: bool) -> None:
        """``is_bounded``: whether to give up on an answer; a file on this machine needs no such limit."""
        self._is_bounded = is_bounded
        self._asker: _Asker | None = None
        self._late: list[_Asker] = []
        self._cpu_s = 0.0
        self._is_working = False
        self._moved_at = time.monotonic()

    @property
    def cpu_s(self) -> float:
        """CPU seconds that were used in the threads of the questions."""
        return self._cpu_s

    def moved_at(self) -> float:
        """When the last answer came, by this machine's monotonic clock; now, while it works itself."""
        return time.monotonic() if self._is_working else self._moved_at

    @contextmanager
    def working(self) -> Generator[None]:
        """Take the block as work of this machine, which takes its time but gets on: an import, new tables."""
        self._is_working = True
        try:
            yield
        finally:
            self._moved_at = time.monotonic()
            self._is_working = False

    def while_working(self, do: Callable[[U], T]) -> Callable[[U], T]:
        """The same call, taken as `working`."""

        def work(argument: U) -> T:
            with self.working():
                return do(argument)

        return work

    def ask(self, question: Callable[[], T], limit_s: float = ANSWER_S) -> T:
        """Return what ``question`` returns, and raise what it raises.

        Raises:
            TrackerOutage: there was no answer within ``limit_s``, or too many are outstanding.
        """
        answer = self._bounded(question, limit_s) if self._is_bounded else question()
        self._moved_at = time.monotonic()
        return answer

    def _bounded(self, question: Callable[[], T], limit_s: float) -> T:
        self._late = [asker for asker in self._late if asker.is_alive()]
        if len(self._late) >= _MOST_LATE:
            raise TrackerOutage(f"{len(self._late)} requests are still without an answer")
        if self._asker is None:
            self._asker = _Asker(self._note_cpu)
        future = self._asker.put(question)
        try:
            return future.result(limit_s)
        except TimeoutError:
            if future.done():  # the question's own
                raise
            self._asker.leave()
            self._late.append(self._asker)
            self._asker = None
            raise TrackerOutage(f"no answer within {limit_s:g} s") from None

    def _note_cpu(self, seconds: float) -> None:
        self._cpu_s += seconds


class _Asker:
    """One thread; it dies with the process, whatever it waits for."""

    def __init__(self, note_cpu: Callable[[float], None]) -> None:
        self._note_cpu = note_cpu
        self._questions: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="mlflow-request", daemon=True)
        self._thread.start()

    def put(self, question: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        self._questions.put((future, question))
        return future

    def leave(self) -> None:
        """Let the thread end after the question that it is at."""
        self._questions.put(None)

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        while (item := self._questions.get()) is not None:
            future, question = item
            began = time.thread_time()
            try:
                answer = question()
            except BaseException as error:  # noqa: BLE001 - whoever asked gets it
                future.set_exception(error)
            else:
                future.set_result(answer)
            self._note_cpu(time.thread_time() - began)
