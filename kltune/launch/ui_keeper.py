"""A command in; it runs for as long as our standard input is open, then it and all that it started are ended.

A process of its own between ``kltune ui`` and each server. Its standard input is a pipe whose other end
``kltune ui`` holds: when that process is gone, however it went, the pipe is at its end, and no server is
left behind. Standard library only, so that it starts at once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from types import FrameType

GRACE_S = 1.0
"""From the request to end until whoever is left is killed: what only reads has nothing to finish."""


def keep(command: Sequence[str]) -> None:
    """Run the command and end with it; the last act is to kill the group, this process included."""
    if os.getpgid(0) != os.getpid():
        os.setpgid(0, 0)  # a group of our own: nobody else may be killed with it
    # What is sent to the group reaches the command as well; this process stays until all are gone.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _stay)
    process = subprocess.Popen(list(command), stdin=subprocess.DEVNULL)
    threading.Thread(target=_end_at_the_end_of_input, args=(process,), daemon=True).start()
    process.wait()
    _end_group(process)


def _stay(_number: int, _frame: FrameType | None) -> None:
    """Unlike SIG_IGN, this is not handed on to the command."""


def _end_at_the_end_of_input(process: subprocess.Popen[bytes]) -> None:
    while os.read(0, 4096):
        pass
    _end_group(process)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    os.killpg(0, signal.SIGTERM)
    try:
        process.wait(GRACE_S)
    finally:
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    keep(sys.argv[1:])
