"""Jobs in, answers out, from one child process that is kept; one that takes too long is killed and replaced."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kltune.errors import EnvironmentMissingError
from kltune.rewards.sandbox import end_group

_START_SECONDS: Final = 60.0
"""For imports that a cold disk makes slow."""
_GRACE: Final = 1.0
"""The child's own alarm comes first; this is for one that can't be ended so."""


@dataclass(slots=True)
class _Held:
    """What must be given back, also where nobody closes the worker."""

    folder: Path | None = None
    child: subprocess.Popen[bytes] | None = None

    def end(self) -> None:
        if self.child is not None:
            end_group(self.child)
            self.child = None
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None


class LineWorker:
    """A child that runs a file: a JSON line in, a JSON line out, after a first line that says it is up."""

    def __init__(self, main: Path) -> None:
        """Nothing is started yet."""
        self._main = main
        self._lock = threading.Lock()
        self._held = _Held()
        weakref.finalize(self, self._held.end)

    def ask(self, job: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        """The child's answer; None where it died or was ended over this job.

        Raises:
            EnvironmentMissingError: it does not come up.
        """
        with self._lock:
            child = self._running()
            assert child.stdin is not None
            try:
                line = json.dumps({**job, "seconds": seconds}).encode() + b"\n"
                child.stdin.write(line)
                child.stdin.flush()
            except OSError:
                self._held.end()
                return None
            answer = _line(child, seconds + _GRACE)
            if answer is None:
                self._held.end()
            return answer

    def close(self) -> None:
        """End the child; the next job starts another."""
        with self._lock:
            self._held.end()

    def _running(self) -> subprocess.Popen[bytes]:
        held = self._held
        if held.child is not None and held.child.poll() is None:
            return held.child
        held.end()
        held.folder = Path(tempfile.mkdtemp(prefix="kltune-"))
        place = str(held.folder)
        try:
            held.child = subprocess.Popen(
                [sys.executable, "-I", "-B", str(self._main), place],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=place,
                env={"PATH": os.defpath, "HOME": place, "TMPDIR": place, "LANG": "C.UTF-8"},
                start_new_session=True,
            )
        except OSError as error:
            held.end()
            raise EnvironmentMissingError(
                f"no child process can be started here ({error})"
            ) from error
        if _line(held.child, _START_SECONDS) is None:
            held.end()
            raise EnvironmentMissingError(
                f"the child process of {self._main.name} does not come up"
            )
        return held.child


def _line(child: subprocess.Popen[bytes], seconds: float) -> dict[str, Any] | None:
    """The next line, read from the pipe itself: nothing is buffered between two of them."""
    assert child.stdout is not None
    pipe = child.stdout.fileno()
    until = time.monotonic() + seconds
    heard = b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while not heard.endswith(b"\n"):
            if not selector.select(max(0.0, until - time.monotonic())):
                return None
            part = os.read(pipe, 1 << 16)
            if not part:
                return None
            heard += part
    try:
        return json.loads(heard)
    except ValueError:
        return None
