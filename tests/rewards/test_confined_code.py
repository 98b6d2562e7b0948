"""The child's main: what it says on its pipe, in order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from kltune.rewards import confined_code


def run(program: str, folder: Path) -> list[object]:
    reading, writing = os.pipe()
    job = {
        "program": program, "folder": str(folder), "word": "the word",
        "memory_bytes": 256 << 20, "file_bytes": 1 << 20, "cpu_seconds": 5,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", confined_code.__file__, str(writing)],
        input=json.dumps(job).encode(), pass_fds=(writing,), capture_output=True, check=False,
    )  # fmt: skip
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = [json.loads(line) for line in pipe]
    assert done.returncode == 0, done.stderr
    return said


def test_the_word_is_said_at_the_end_and_only_there(tmp_path: Path) -> None:
    assert run("x = 1", tmp_path)[1:] == ["the word"]
    assert run("raise ValueError('a\\nb')", tmp_path)[1:] == ["ValueError: a\nb"]
    assert run("import os; os._exit(0)", tmp_path)[1:] == []


def test_exit_handlers_have_no_say(tmp_path: Path) -> None:
    program = "import atexit, time\natexit.register(time.sleep, 60)\nassert False"
    assert run(program, tmp_path)[1:] == ["AssertionError: "]


def test_installed_packages_are_not_there(tmp_path: Path) -> None:
    assert run("import kltune", tmp_path)[1] == "ModuleNotFoundError: No module named 'kltune'"
