"""Real processes that are members of a study, as a sweep and its workers are."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

JOIN = """
import sys
from pathlib import Path
from kltune.study.crew import join
from kltune.study.lock import enter_study
study, role = Path(sys.argv[1]), sys.argv[2]
with enter_study(study, lambda: True, lambda: False) as hold, join(study, role) as member:
    member.place(2, "cpu")
    print("in", flush=True)
    sys.stdin.read()
"""


@contextmanager
def member_process(study: Path, role: str = "worker") -> Generator[subprocess.Popen[bytes]]:
    """Another process that works on the study, with its lock shared; it leaves in good order at the end."""
    command = [sys.executable, "-c", JOIN, str(study), role]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"in\n"
        try:
            yield process
        finally:
            if process.poll() is None:
                process.communicate()
