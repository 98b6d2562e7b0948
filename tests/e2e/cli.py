"""Runs the command line as a user does, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).parents[2]
KITCHEN = ROOT / "sweeps" / "kitchen.yaml"
QUICK = (
    "trainer.steps=6",
    "evaluate.every=3",
    "evaluate.prompts=8",
    "evaluate.samples=1",
    "trainer.prompts=2",
)
"""Overrides that make a kitchen trial a matter of a second."""


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "HF_HUB_OFFLINE": "1"}


def command(*args: str | Path) -> list[str]:
    return [sys.executable, "-m", "kltune", *(str(arg) for arg in args)]


def kltune(*args: str | Path, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*args),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env=environment(),
    )


def start(*args: str | Path, stderr: int | TextIO = subprocess.PIPE) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*args),
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env=environment(),
        start_new_session=True,
    )


def sets(*overrides: str) -> list[str]:
    return [word for override in overrides for word in ("--set", override)]


def strict(text: str) -> Any:
    """Parse JSON that must hold no NaN or Infinity."""

    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is not strict JSON")

    return json.loads(text, parse_constant=refuse)


def wait_for_rows(path: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Wait until a JSONL file has ``count`` rows."""
    for _ in range(2400):
        if path.exists() and len(path.read_text(encoding="utf-8").splitlines()) >= count:
            return
        if process.poll() is not None:
            raise AssertionError(f"ended early: {process.communicate()[1][-2000:]}")
        time.sleep(0.05)
    raise AssertionError(f"{path} never had {count} rows")
