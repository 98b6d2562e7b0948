from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from process_groups import eventually, members

KEEPER = [sys.executable, "-P", "-m", "kltune.launch.ui_keeper"]
TREE = """
import subprocess, sys, time
grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(grandchild.pid, flush=True)
{}
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(60)
"""


def start(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*KEEPER, sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def close(process: subprocess.Popen[str]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
    process.wait(20)


def test_all_end_when_the_pipe_ends() -> None:
    process = start(TREE.format("time.sleep(60)"))
    grandchild = int(first_line(process))
    assert grandchild in members(process.pid)
    assert len(members(process.pid)) == 3
    close(process)
    assert eventually(lambda: members(process.pid) == [])


def test_a_command_that_ignores_the_request_is_killed() -> None:
    process = start(STUBBORN)
    assert first_line(process) == "ready"
    close(process)
    assert eventually(lambda: members(process.pid) == [])


def test_what_a_command_left_behind_ends_with_it() -> None:
    process = start(TREE.format("sys.exit(0)"))
    first_line(process)
    process.wait(20)
    assert eventually(lambda: members(process.pid) == [])
    close(process)


def test_nothing_is_left_when_the_owner_is_killed(tmp_path: Path) -> None:
    owner_code = f"""
import subprocess, sys, time
keeper = subprocess.Popen({KEEPER!r} + [sys.executable, "-c", "import time; time.sleep(60)"],
    stdin=subprocess.PIPE, start_new_session=True)
print(keeper.pid, flush=True)
time.sleep(60)
"""
    command: Sequence[str] = [sys.executable, "-c", owner_code]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    group = int(first_line(owner))
    assert eventually(lambda: len(members(group)) == 2)
    owner.send_signal(signal.SIGKILL)
    close(owner)
    assert eventually(lambda: members(group) == [])


def test_started_in_a_group_of_others_it_leaves_them_alone() -> None:
    code = f"""
import subprocess, sys
keeper = subprocess.Popen({KEEPER!r} + [sys.executable, "-c", "pass"], stdin=subprocess.PIPE)
keeper.communicate()
print("still here", flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "still here\n")
