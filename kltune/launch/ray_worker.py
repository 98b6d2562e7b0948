"""The words of a ``kltune worker`` in; out: that process on a node of the cluster, its lines and its exit code.

`NodeWorker` is made to be a Ray actor. The worker is a process of its own, since it listens to signals,
prints, and gives all its memory back at its end. Its standard input is a pipe that the actor holds: when the
actor is gone, however it went, the worker saves its trials and ends.
"""

from __future__ import annotations

import os
import queue
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import kltune

_GRACE_S: Final = 30.0
"""How long a worker that is told to stop may take to save its trials."""


@dataclass(frozen=True, slots=True)
class News:
    """What a worker said since it was asked last."""

    lines: tuple[str, ...]
    code: int | None
    """Of its exit; none: it works. Negative: the signal that killed it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a worker is."""

    pid: int
    devices: str
    """Numbers of the GPUs that it was given; empty: none."""


class NodeWorker:
    """One ``kltune worker`` process on this node; made to be a Ray actor."""

    def __init__(
        self, words: Sequence[str], environ: Mapping[str, str], must_see: str | None = None
    ) -> None:
        """Start ``kltune WORDS`` with ``environ`` on top of this process's.

        ``must_see``: a path that the driver made; a node that doesn't see it shares no folder with it.

        Raises `FileNotFoundError` where it is not there.
        """
        if must_see is not None and not Path(must_see).exists():
            raise FileNotFoundError(must_see)
        # Ray puts the shipped package on this process's path only.
        shipped = str(Path(kltune.__file__).parents[1])
        path = os.pathsep.join(filter(None, (shipped, os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kltune.launch.ray_worker", *words],
            env={**os.environ, **environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,  # never written to: it ends when we do
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def place(self) -> Place:
        """Where it runs."""
        return Place(self._process.pid, os.environ.get("CUDA_VISIBLE_DEVICES", ""))

    def news(self, seconds: float) -> News:
        """What it said, at the latest after ``seconds``; earlier where it said something or ended."""
        until = time.monotonic() + seconds
        lines: list[str] = []
        while not lines and self._process.poll() is None and time.monotonic() < until:
            try:
                lines.append(self._lines.get(timeout=min(0.2, seconds)))
            except queue.Empty:
                continue
        code = self._process.poll()
        if code is not None:
            self._reader.join(5.0)
            self._close()
        while not self._lines.empty():
            lines.append(self._lines.get())
        return News(tuple(lines), code)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Tell it to save its trials and go."""
        if self._process.poll() is None:
            self._process.send_signal(number)

    def finish(self) -> News:
        """Wait until it is gone, then kill what is left of its group."""
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        return self.news(0.0)

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if line.strip():
                self._lines.put(line.rstrip())


def main() -> None:
    """``kltune`` with the words of this process, ended like by SIGTERM at the end of its standard input."""
    threading.Thread(target=_terminate_at_the_end_of_input, daemon=True).start()
    runpy.run_module("kltune", run_name="__main__", alter_sys=True)


def _terminate_at_the_end_of_input() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
