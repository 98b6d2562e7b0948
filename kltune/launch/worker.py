"""A job in, a handle on the process that works on it out: start, send, receive, end."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
from collections.abc import Sequence
from multiprocessing import resource_tracker
from typing import Any

from kltune.errors import RunError, SpecError, StudyError
from kltune.launch.worker_process import START, Halts, Job, Link, serve

POLL_S = 1.0
"""How often a worker that is waited for is looked after, should it be gone without closing its pipe."""

GRACE_S = 1.0
"""How long a worker may take to end by itself."""


class WorkerDiedError(Exception):
    """The process is gone; says how it ended."""


class Worker:
    """A process with a bank of its own.

    Started by *spawn*: a process whose OpenMP threads have run can't be forked. It is no
    *daemon* in the sense of multiprocessing, since a scorer may start processes itself.
    """

    def __init__(self, number: int, threads: int, job: Job) -> None:
        """Start it; :meth:`wait_until_ready` before anything is sent."""
        context = multiprocessing.get_context("spawn")
        self.number = number
        self._last = START
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=serve, args=(theirs, threads, pickle.dumps(job)), name=f"kltune-worker-{number}"
        )
        resource_tracker.ensure_running()  # the first start would do it, and unblock signals
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        try:
            self._process.start()  # it inherits the mask until it ignores them
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()  # or its end would never be seen

    @property
    def pid(self) -> int | None:
        """Of the process."""
        return self._process.pid

    def wait_until_ready(self) -> None:
        """Return when its bank stands.

        Raises:
            WorkerDiedError: it is gone.
            RunError: the spec, whose study is under way by now, can't be used there after all.
        """
        try:
            self.receive(START)
        except (SpecError, StudyError) as error:
            # Their exit code would say that nothing was started.
            raise RunError(str(error)) from error

    def ask(self, name: str, *arguments: object) -> Any:
        """Send a command and wait for its reply; raises what the command raised."""
        return self.receive(self.send(name, *arguments))

    def send(self, name: str, *arguments: object) -> int:
        """Send a command; return the number by which :meth:`receive` knows its reply.

        Raises:
            WorkerDiedError: it is gone.
        """
        return self._send(name, arguments, None)

    def send_chain(
        self, commands: Sequence[tuple[str, tuple[object, ...]]], halts: Halts | None, most_s: float
    ) -> list[int]:
        """Send commands that are carried out one after the other; return their numbers.

        After one that fails, or whose result ``halts``, the rest is answered by `Skipped`; so is what
        has not begun ``most_s`` seconds after the first.

        Raises:
            WorkerDiedError: it is gone.
        """
        link = (self._last + 1, halts, most_s)
        return [self._send(name, arguments, link) for name, arguments in commands]

    def _send(self, name: str, arguments: tuple[object, ...], link: Link | None) -> int:
        self._last += 1
        try:
            self._pipe.send((self._last, name, arguments, link))
        except OSError as error:
            raise WorkerDiedError(self._how_it_ended()) from error
        return self._last

    def receive(self, number: int) -> Any:
        """Wait for the reply of that number; earlier ones, which nobody waited for, are dropped.

        Raises:
            WorkerDiedError: it is gone. Anything else is what the command raised.
        """
        while True:
            try:
                while not self._pipe.poll(POLL_S):
                    if not self._process.is_alive() and not self._pipe.poll(0):
                        raise WorkerDiedError(self._how_it_ended())
                answered, value, error = self._pipe.recv()
            except (EOFError, OSError) as lost:
                raise WorkerDiedError(self._how_it_ended()) from lost
            if answered == number:
                if error is not None:
                    raise error
                return value

    def close(self) -> None:
        """End the process: at once, where it doesn't notice that nobody is left to talk to."""
        self._pipe.close()
        try:
            self._process.join(GRACE_S)
        finally:  # a second Ctrl-C may come while we wait
            if self._process.exitcode is None:
                self._process.kill()
                self._process.join()

    def _how_it_ended(self) -> str:
        self._process.join(GRACE_S)
        code = self._process.exitcode
        how = "" if code is None else f" (signal {-code})" if code < 0 else f" (exit code {code})"
        return f"worker process {self.number} died{how}"
