"""The process on a node: its words, its lines, its code, and its end when nobody holds it any more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kltune.errors import ExitCode
from kltune.launch.ray_worker import News, NodeWorker

ABSENT = ("worker", "no-such-study")


def _until_its_end(worker: NodeWorker, seconds: float = 120) -> News:
    lines: list[str] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        news = worker.news(1.0)
        lines += news.lines
        if news.code is not None:
            return News(tuple(lines), news.code)
    raise AssertionError(f"it is still there: {lines}")


def test_its_lines_and_its_code_come_back() -> None:
    news = _until_its_end(NodeWorker(ABSENT, {}))
    assert news.code == ExitCode.USAGE
    assert "no-such-study" in news.lines[-1]


def test_it_gets_the_environment_that_it_is_given() -> None:
    # A study that is not there is looked for in the database that the environment names.
    worker = NodeWorker(("worker", "ftp://host/db#s"), {"KLTUNE_STORAGE": "ftp://host/db"})
    assert _until_its_end(worker).code == ExitCode.USAGE


def test_a_node_that_does_not_share_the_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="marker"):
        NodeWorker(ABSENT, {}, str(tmp_path / "marker"))


def test_a_worker_whose_actor_is_gone_ends_as_if_terminated(tmp_path: Path) -> None:
    # As main() of the module does it, with a program that says how it ended.
    program = tmp_path / "program.py"
    program.write_text(
        "import signal, sys, threading, time\n"
        "from kltune.launch import ray_worker\n"
        "def end(*_):\n    print('saved', flush=True); sys.exit(75)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "threading.Thread(target=ray_worker._terminate_at_the_end_of_input, daemon=True).start()\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    holder = subprocess.Popen(
        [sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stdout.readline() == "ready\n"
    holder.stdin.close()
    assert holder.wait(30) == 75
    assert holder.stdout.readline() == "saved\n"
    holder.stdout.close()


def test_a_worker_is_told_to_stop_and_waited_for() -> None:
    worker = NodeWorker(("ui", "no-such-study"), {})
    worker.stop(signal.SIGKILL)
    assert worker.finish().code in (-signal.SIGKILL, int(ExitCode.USAGE))
