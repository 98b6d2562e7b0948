"""Samples in, their scores by a user's function in a child process out: it can hang or crash, and only it dies.

A message is its length in 8 bytes and a pickle: between processes of kltune alone, over pipes that only they
have. The user's function, which runs in the child, comes from the spec and may do all that its user may. The child's stdout goes to stderr, so that what the
function prints is no message.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from kltune.tasks.calls_limits import OverTimeError
from kltune.tasks.protocol import Sample

_HEAD: Final = struct.Struct(">Q")
_START: Final = "from kltune.tasks.calls_served import serve; serve()"
_GRACE_S: Final = 60.0
"""Beside the call itself: until Python and the user's file are loaded."""
_LATE_S: Final = 1.0
"""The child interrupts the call itself first, and then can say where it was."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a child finds the function."""

    reference: str
    path: Path | None
    """Its file; none: it is in a module."""
    folders: tuple[Path, ...]
    """Where modules may lie."""
    style: Literal["auto", "trl", "verl"] = "auto"


class ChildDiedError(Exception):
    """The child ended without an answer."""


@dataclass(slots=True, weakref_slot=True)
class Child:
    """A child process for one function: started by the first call, started anew after one that died."""

    origin: Origin
    _process: subprocess.Popen[bytes] | None = None
    _end: Any = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, samples: Sequence[Sample], limit_s: float) -> list[float]:
        """The scores of ``samples``.

        Raises:
            OverTimeError: no answer within ``limit_s``; the child and all that it started were ended.
            ChildDiedError: it ended instead of answering.
            ScorerError: the function raised, or returned what is no score.
            SpecError: it can't be loaded there.
        """
        with self._lock:
            is_new = self._process is None or self._process.poll() is not None
            process = self._start() if is_new or self._process is None else self._process
            until = time.monotonic() + limit_s + (_GRACE_S if is_new else 0.0)
            try:
                kind, answer = self._exchange(process, samples, until, limit_s)
            except (
                BaseException
            ):  # also Ctrl-C: an answer that comes late must not meet the next question
                self.close()
                raise
        if kind == "error":
            raise answer
        return answer

    @property
    def pid(self) -> int | None:
        """Of the process; none where there is none."""
        return None if self._process is None else self._process.pid

    def close(self) -> None:
        """End the child and every process that it started."""
        if self._end is not None:
            self._end()
        self._process = self._end = None

    def _start(self) -> subprocess.Popen[bytes]:
        self.close()
        package = str(Path(__file__).resolve().parents[2])
        paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
        process = subprocess.Popen(
            [sys.executable, "-c", _START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,
        )
        self._process = process
        self._end = weakref.finalize(self, _kill, process)
        return process

    def _exchange(
        self,
        process: subprocess.Popen[bytes],
        samples: Sequence[Sample],
        until: float,
        limit_s: float,
    ) -> tuple[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            put_message(process.stdin, (self.origin, limit_s, list(samples)))
        except BrokenPipeError:
            raise ChildDiedError(_how(process)) from None
        # Loaded first, timed then.
        if self._receive(process, until) != "ready":
            raise ChildDiedError(_how(process))
        return self._receive(process, time.monotonic() + limit_s + _LATE_S)

    def _receive(self, process: subprocess.Popen[bytes], until: float) -> Any:
        assert process.stdout is not None
        length = _HEAD.unpack(_read(process, _HEAD.size, until))[0]
        return pickle.loads(_read(process, length, until))


def put_message(stream: Any, message: object) -> None:
    """Write one message."""
    data = pickle.dumps(message)
    stream.write(_HEAD.pack(len(data)) + data)
    stream.flush()


def take_message(stream: Any) -> Any:
    """Read one message; none where the stream has closed."""
    head = stream.read(_HEAD.size)
    return pickle.loads(stream.read(_HEAD.unpack(head)[0])) if len(head) == _HEAD.size else None


def _read(process: subprocess.Popen[bytes], count: int, until: float) -> bytes:
    assert process.stdout is not None
    stream = process.stdout.fileno()
    data = b""
    while len(data) < count:
        ready, _, _ = select.select([stream], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            raise OverTimeError
        part = os.read(stream, count - len(data))
        if not part:
            raise ChildDiedError(_how(process))
        data += part
    return data


def _how(process: subprocess.Popen[bytes]) -> str:
    try:
        code = process.wait(1.0)
    except subprocess.TimeoutExpired:
        return "it closed its output"
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
