from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kltune.cli import app
from kltune.spec.load import load_spec

KLTUNE = [sys.executable, "-m", "kltune"]


def test_flags_reach_the_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    args = "init mine/spec.yaml --model builtin:kitchen-small --gold r.py:judge --proxy learned"
    done = CliRunner().invoke(app, [*args.split(), "--algorithm", "rloo", "--minutes", "5"])
    assert done.exit_code == 0, done.output
    spec = load_spec(Path("mine/spec.yaml")).spec
    assert (spec.model.base, spec.trainer.algorithm) == ("builtin:kitchen-small", "rloo")
    assert spec.budget.wall == 300


def test_without_a_terminal_nothing_is_asked_and_a_need_is_exit_2(tmp_path: Path) -> None:
    done = subprocess.run(
        [*KLTUNE, "init", "--task", "own"],
        cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: --model: needed")
    assert list(tmp_path.iterdir()) == []


class Terminal:
    """A real terminal with ``kltune init`` in it."""

    def __init__(self, folder: Path, *args: str) -> None:
        self.pid, self.end = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execv(sys.executable, [*KLTUNE, "init", *args])
        self.seen = ""

    def wait_for(self, text: str) -> None:
        start = time.monotonic()
        while text not in self.seen:
            assert time.monotonic() - start < 60, self.seen
            if select.select([self.end], [], [], 1)[0]:
                self.seen += os.read(self.end, 4096).decode()

    def answer(self, question: str, text: str) -> None:
        self.wait_for(question)
        self.seen = ""
        os.write(self.end, text.encode())

    def exit_code(self) -> int:
        _, status = os.waitpid(self.pid, 0)
        os.close(self.end)
        return os.waitstatus_to_exitcode(status)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_person_at_a_terminal_is_asked(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "a.yaml")
    terminal.answer("task [kitchen]: ", "\n")
    terminal.answer("algorithm [grpo]: ", "nope\n")
    terminal.answer("algorithm [grpo]: ", "dr-grpo\n")
    terminal.answer("minutes [15]: ", "4\n")
    terminal.wait_for("--dry-run")
    assert terminal.exit_code() == 0
    spec = load_spec(tmp_path / "a.yaml").spec
    assert (spec.trainer.algorithm, spec.budget.wall) == ("dr-grpo", 240)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("key", ["\x03", "\x04"], ids=["ctrl-c", "ctrl-d"])
def test_ctrl_c_at_a_terminal_leaves_nothing(tmp_path: Path, key: str) -> None:
    terminal = Terminal(tmp_path, "new/spec.yaml")
    terminal.answer("task [kitchen]: ", "own\n")
    terminal.answer("model: ", key)
    terminal.wait_for("nothing was written")
    assert terminal.exit_code() == 128 + signal.SIGINT
    assert list(tmp_path.iterdir()) == []
