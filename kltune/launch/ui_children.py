"""A command that serves on a port in, a process that answers there (and is surely ended) out."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kltune.launch.ui_keeper import GRACE_S
from kltune.launch.ui_loopback import LOOPBACK
from kltune.masking import redact

PATIENCE_S = 180.0
"""How long a server may take to answer: MLflow imports for 10 s on a quiet machine."""
_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class Command:
    """How a server is started."""

    name: str
    """For people."""
    arguments: Sequence[str]
    """Of this Python."""
    port: int
    answers_at: str
    """Path that answers once it is ready."""
    environment: Mapping[str, str]


class Child:
    """A server in a process group of its own. It ends when `end` is called or this process is gone."""

    def __init__(self, command: Command, scratch: Path) -> None:
        """Start it; its working folder and its log are in ``scratch``."""
        self.command = command
        self._log = scratch / f"{command.name}.log"
        folder = scratch / f"{command.name}.folder"  # MLflow makes folders where it is started
        folder.mkdir(exist_ok=True)
        keeper = [sys.executable, "-P", "-m", "kltune.launch.ui_keeper"]
        with self._log.open("wb") as log:
            self._keeper = subprocess.Popen(
                [*keeper, sys.executable, "-P", *command.arguments],
                stdin=subprocess.PIPE,  # never written to: it ends when we do
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=dict(command.environment),
                start_new_session=True,  # Ctrl-C in the terminal is ours to hear
            )

    @property
    def group(self) -> int:
        """The process group."""
        return self._keeper.pid

    def is_running(self) -> bool:
        """Whether the server is still there."""
        return self._keeper.poll() is None

    def wait_until_it_answers(
        self, should_stop: Callable[[], bool], patience_s: float = PATIENCE_S
    ) -> str | None:
        """Return None once the server answers or should stop, else why it does not."""
        until = time.monotonic() + patience_s
        while not should_stop():
            if not self.is_running():
                return f"it ended at once{self.last_words()}"
            if _answers(self.command.port, self.command.answers_at):
                return None
            if time.monotonic() >= until:
                return f"it did not answer within {patience_s:.0f} s{self.last_words()}"
            time.sleep(_LOOK_S)
        return None

    def last_words(self) -> str:
        """The last line that it wrote, to be put behind a sentence; empty where there is none."""
        text = self._log.read_text(encoding="utf-8", errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return f": {redact(lines[-1])[:300]}" if lines else ""

    def begin_to_end(self) -> None:
        """Ask the whole group to end, and go on."""
        if self._keeper.stdin is not None and not self._keeper.stdin.closed:
            self._keeper.stdin.close()

    def end(self) -> None:
        """End the whole group; return when it is gone."""
        self.begin_to_end()
        try:
            self._keeper.wait(GRACE_S + 4)
        except (
            subprocess.TimeoutExpired
        ):  # a keeper that was stopped, or a machine that stands still
            self._keeper.kill()
            self._keeper.wait()
        _kill_group(self.group)


def _kill_group(group: int) -> None:
    """The number can't be another's meanwhile: it stays taken for as long as one of the group lives."""
    try:
        os.killpg(group, 9)
    except (ProcessLookupError, PermissionError):
        return


def _answers(port: int, path: str) -> bool:
    # No proxy of the environment: it could not reach our loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{LOOPBACK}:{port}{path}", timeout=5) as answer:
            return answer.status == 200
    except (OSError, ValueError):  # refused, or not ready: URLError and HTTPError are OSErrors
        return False
