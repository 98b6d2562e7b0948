"""Foreign code runs, and can neither hurt nor hang this machine. Numbers are measured, not promised."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from kltune.rewards.sandbox import Finished, Limits, end_group, run_program

LIMITS = Limits(seconds=5, memory_mib=256, file_mib=1)


def problem(program: str) -> str:
    finished = run_program(program, LIMITS)
    assert not finished.has_passed
    return finished.problem


def skip_unless_confined(finished: Finished) -> None:
    if finished.unprevented:
        pytest.skip("; ".join(finished.unprevented))


def test_a_program_that_comes_to_its_end_passes() -> None:
    assert run_program("import math, json\nassert math.sqrt(4) == 2", LIMITS).has_passed
    assert run_program("open('notes.txt', 'w').write('x')", LIMITS).has_passed
    assert problem("assert 1 == 2, 'no'") == "AssertionError: no"
    assert problem("def f(:").startswith("SyntaxError")


@pytest.mark.parametrize(
    "program",
    [
        "import sys; sys.exit(0)",
        "import os; os._exit(0)",
        "import os, signal; signal.raise_signal(9)",
        "import os\nfor fd in range(3, 4096):\n  try: os.write(fd, b'\"passed\"\\n')\n  except OSError: pass",
        "raise KeyboardInterrupt",
    ],
)
def test_leaving_early_does_not_pass(program: str) -> None:
    assert problem(program)


@pytest.mark.parametrize(
    "program", ["while True: pass", "import time; time.sleep(60)", "9**9**9**9"]
)
def test_a_program_that_hangs_is_ended(program: str) -> None:
    start = time.monotonic()
    finished = run_program(program, Limits(0.3, 256, 1))
    assert finished.problem == "was ended after 0.3 s"
    assert time.monotonic() - start < 5


def test_memory_and_files_have_a_limit() -> None:
    assert problem("x = bytearray(10**9)") == "MemoryError"
    assert "File too large" in problem("open('a', 'wb').write(bytes(3_000_000))")


def test_neither_network_nor_other_processes_nor_other_files_are_reached(tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("kept")
    skip_unless_confined(run_program("", LIMITS))
    for program in (
        "import socket; socket.socket()",
        f"import os; os.kill({os.getpid()}, 0)",
        f"open({str(mine)!r}, 'w')",
        f"import os; os.unlink({str(mine)!r})",
        f"import os; os.chmod({str(mine)!r}, 0)",
        f"import subprocess; subprocess.run(['rm', {str(mine)!r}], check=True)",
        "import os; os.setsid()",
    ):
        assert problem(program).split(":")[0] in ("PermissionError", "CalledProcessError"), program
    assert mine.read_text() == "kept"


def test_nothing_of_this_processs_environment_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "sk-secret-1")
    assert run_program("import os; assert 'JUDGE_KEY' not in os.environ", LIMITS).has_passed


@pytest.mark.parametrize(
    "program",
    [
        "import os; os.fork()",
        "import os; os.posix_spawn('/bin/true', ['true'], {})",
        "import subprocess; subprocess.run(['true'])",
        "import multiprocessing as m; p = m.get_context('fork').Process(); p.start()",
        "import ctypes; c = ctypes.CDLL(None, use_errno=True); "
        "r = c.syscall(56 if c.syscall(39) == __import__('os').getpid() else 220, 17, 0, 0, 0, 0); "
        "assert r == -1 and ctypes.get_errno() == 1; raise PermissionError",
    ],
)
def test_no_second_process_can_double_the_limits(program: str) -> None:
    skip_unless_confined(run_program("", LIMITS))
    assert problem(program).split(":")[0] in ("PermissionError", "BlockingIOError")


def test_a_program_may_use_threads() -> None:
    work = "import threading\nfound = []\nt = threading.Thread(target=found.append, args=(1,))\n"
    assert run_program(f"{work}t.start()\nt.join()\nassert found == [1]", LIMITS).has_passed


def test_the_environment_of_kltune_itself_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    skip_unless_confined(run_program("", LIMITS))
    found = problem(f"raise ValueError(open('/proc/{os.getpid()}/environ', 'rb').read()[:40])")
    assert found.startswith("PermissionError")


def test_what_a_program_leaves_running_is_ended_with_it() -> None:
    before = _sleepers()
    program = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()"
    assert run_program(program, LIMITS).has_passed
    until = time.monotonic() + 5  # a killed process is gone a moment later
    while _sleepers() - before and time.monotonic() < until:
        time.sleep(0.02)
    assert _sleepers() - before == set()


def _sleepers() -> set[int]:
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"confined_code.py" in path.read_bytes() and _state(path.parent) != "Z":
                found.add(int(path.parent.name))
        except OSError:
            continue
    return found


def _state(process: Path) -> str:
    return (process / "stat").read_text().rpartition(")")[2].split()[0]


def test_a_child_is_only_ended_once() -> None:
    import subprocess

    child = subprocess.Popen(
        [sys.executable, "-c", "pass"], stdin=subprocess.PIPE, start_new_session=True
    )
    end_group(child)
    end_group(child)
    assert child.returncode is not None
