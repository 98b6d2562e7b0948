"""A job on the command line (JSON), one step per line asked on stdin; answers as JSON lines on stdout.

A child blocks between steps, so it takes no time from the contender whose turn it is.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from typing import TYPE_CHECKING

from tests.bench.job import Job

if TYPE_CHECKING:
    from collections.abc import Mapping


class Channel:
    """The pipe to the parent. What libraries print goes to stderr instead."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def reply(self, answer: Mapping[str, object]) -> None:
        """Answer the last request, with this process's peak memory."""
        self._out.write(json.dumps({**answer, "peak_mb": peak_mb()}) + "\n")
        self._out.flush()

    def is_asked(self) -> bool:
        """Block until another step is asked for; false at the end."""
        return sys.stdin.readline().strip() == "step"


def peak_mb() -> float:
    """Largest resident memory that this process ever had, in MB (2^20 bytes)."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def main() -> None:
    """Become the contender that the job names."""
    job = Job.from_json(sys.argv[1])
    channel = Channel()
    if job.trainer == "kltune":
        from tests.bench.kltune_side import run
    elif job.trainer == "trl":
        from tests.bench.trl_side import run
    else:
        from tests.bench.peak_side import run
    run(job, channel)
    os._exit(0)  # nothing to save, and libraries' exit hooks can take seconds


if __name__ == "__main__":
    main()
