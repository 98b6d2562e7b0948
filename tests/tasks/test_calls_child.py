from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kltune.tasks.calls_child import Child, ChildDiedError, Origin
from kltune.tasks.calls_limits import OverTimeError
from kltune.tasks.protocol import Prompt, Sample
from kltune.tasks.scorers import ScorerError, ScorerRaisedError

SOURCE = """
import os, subprocess, sys, time, signal
calls = 0
def f(completions, **columns):
    global calls
    calls += 1
    print("noise on stdout")
    word = completions[0]
    if word == "hang":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})  # as compiled code that never returns
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        open(columns["note"][0], "w").write(f"{os.getpid()} {child.pid}")
        time.sleep(60)
    if word == "sleep":
        time.sleep(60)
    if word == "crash":
        os.abort()
    if word == "raise":
        raise ValueError("no")
    if word == "wrong":
        return ["a"]
    return [float(calls)] * len(completions)
"""


@pytest.fixture
def child(tmp_path: Path):
    (tmp_path / "r.py").write_text(SOURCE, encoding="utf-8")
    made = Child(Origin("r.py:f", tmp_path / "r.py", ()))
    yield made
    made.close()


def samples(word: str, **columns: str) -> list[Sample]:
    return [Sample(Prompt("p", "q", columns), word, (1,), True)]


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_one_process_answers_many_calls_and_what_it_prints_is_no_answer(child: Child) -> None:
    assert child.ask(samples("a"), 5.0) == [1.0]
    assert child.ask(samples("a"), 5.0) == [2.0]


def test_what_the_function_does_wrong_is_told_as_here(child: Child) -> None:
    with pytest.raises(ScorerRaisedError, match=r"raised ValueError: no \(r\.py, line 19\)"):
        child.ask(samples("raise"), 5.0)
    with pytest.raises(ScorerError, match=r"returned a str \('a'\)"):
        child.ask(samples("wrong"), 5.0)
    with pytest.raises(ScorerRaisedError, match=r"did not come back within 0.1 s .*r\.py, line 15"):
        child.ask(samples("sleep"), 0.1)
    assert child.ask(samples("a"), 5.0) == [4.0]  # the same process all the while


def test_a_hung_child_and_what_it_started_are_ended_and_the_next_call_has_another(
    child: Child, tmp_path: Path
) -> None:
    child.ask(samples("a"), 5.0)
    note, start = tmp_path / "note", time.monotonic()
    with pytest.raises(OverTimeError):
        child.ask(samples("hang", note=str(note)), 0.5)
    assert time.monotonic() - start < 8.0
    pids = [int(text) for text in note.read_text().split()]
    until = time.monotonic() + 5
    while any(map(is_alive, pids)) and time.monotonic() < until:
        time.sleep(0.02)
    assert not any(map(is_alive, pids))
    assert child.ask(samples("a"), 5.0) == [1.0]


def test_a_crash_ends_the_child_only_and_is_said(child: Child) -> None:
    with pytest.raises(ChildDiedError, match="SIGABRT"):
        child.ask(samples("crash"), 5.0)
    assert child.ask(samples("a"), 5.0) == [1.0]


def test_close_leaves_no_process(child: Child, tmp_path: Path) -> None:
    child.ask(samples("a"), 5.0)
    pid = child.pid
    assert pid is not None
    child.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
