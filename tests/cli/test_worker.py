from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def kltune(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kltune", *args],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1"},
    )


def test_the_help_fits_a_screen_and_has_an_example() -> None:
    shown = kltune("worker", "--help").stdout.splitlines()
    assert len(shown) <= 24
    assert max(map(len, shown)) <= 80
    assert sum("Example: kltune worker" in line for line in shown) == 1


def test_what_can_not_be_joined_is_one_sentence_and_exit_2(tmp_path: Path) -> None:
    for args, told in (
        ([str(tmp_path / "absent")], "no such study folder and no such spec"),
        (["postgresql://u:hidden@h/x#s"], "holds a password"),
        ([str(tmp_path), "--set", "trainer.steps=4"], "trainer.steps can't be changed"),
    ):
        done = kltune("worker", *args)
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith("error: ")
        assert told in done.stderr
        assert "hidden" not in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_slots_are_a_whole_number() -> None:
    done = kltune("worker", "x", "--slots", "0")
    assert done.returncode == 2
    assert "'--slots': must be a whole number of at least 1" in done.stderr
