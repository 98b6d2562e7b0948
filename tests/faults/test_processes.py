"""What the machine does to a sweep: memory that runs out, signals, and what is left of its processes (field cases D1, D5, D6)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from e2e.cli import KITCHEN, QUICK, kltune, sets, start, wait_for_rows

from kltune.trial.record import read_trial, read_trials

pytestmark = pytest.mark.slow

_GREEDY = '''
import resource
calls, held = 0, []

def gold(completions):
    return [float(len(text)) for text in completions]

def proxy(prompts, completions):
    """From its third call to the next one all of the memory that this process may have is taken."""
    global calls
    calls += 1
    if calls == 3:
        size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))
        for piece in (2**20, 2**16):
            try:
                while True:
                    held.append(bytearray(piece))
            except MemoryError:
                pass
        del held[-8:]
    elif held:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        held.clear()
    return [float(text.count("e")) for text in completions]
'''


def test_a_trial_that_runs_out_of_memory_is_tried_again_and_costs_no_other(tmp_path: Path) -> None:
    (tmp_path / "greedy.py").write_text(_GREEDY)
    (tmp_path / "prompts.txt").write_text(
        "".join(f"how long does rice take , version {i} ?\n" for i in range(24))
    )
    spec = {
        "name": "greedy",
        "task": {"prompts": "prompts.txt", "proxy": "greedy.py:proxy", "gold": "greedy.py:gold"},
        "model": {"base": "builtin:kitchen"},
        "trainer": {"steps": 4, "prompts": 4, "group_size": 16, "max_new_tokens": 24},
        "search": {"beta": {"log": [0.01, 1]}},
        "evaluate": {"every": 2, "prompts": 4, "samples": 1},
        "budget": {"trials": 2, "slots": 1, "workers": 1},
        "tracking": {"enabled": False},
    }
    path, study = tmp_path / "greedy.yaml", tmp_path / "S"
    path.write_text(json.dumps(spec))
    run = kltune("sweep", path, "--study", study)
    assert run.returncode == 0, run.stderr[-2000:]
    assert "Traceback" not in run.stderr
    first, second = read_trials(study)
    reasons = [row["reason"] for row in first.events if row["event"] == "ended"]
    assert reasons == ["out_of_memory", "done"]
    assert [row["reason"] for row in second.events if row["event"] == "ended"] == ["done"]


def _descendants(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


@pytest.mark.parametrize(
    ("signals", "code"),
    [
        # One Ctrl-C takes the way of SIGTERM; tests/e2e/test_interruption.py sends it as well.
        pytest.param((signal.SIGINT,), 130, id="ctrl-c", marks=pytest.mark.long),
        pytest.param((signal.SIGTERM,), 75, id="terminated"),
        pytest.param((signal.SIGINT, signal.SIGINT), 130, id="ctrl-c twice"),
    ],
)
def test_no_process_is_left_and_finished_trials_stay(
    tmp_path: Path, signals: tuple[signal.Signals, ...], code: int
) -> None:
    study = tmp_path / "S"
    flags = ("--study", study, "--trials", "4", *sets(*QUICK, "trainer.steps=24"))
    process = start("sweep", KITCHEN, *flags, "--workers", "2", "--slots", "2")
    wait_for_rows(study / "trials" / "00002" / "metrics.jsonl", 3, process)
    children = _descendants(process)
    assert len(children) >= 2
    for number in signals:
        os.killpg(process.pid, number)  # as a terminal does: to all of the group
        time.sleep(0.3)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == code, stderr[-2000:]
    assert "Traceback" not in stderr
    assert "fork" not in stderr  # of tokenizers, which warn of it
    _, left = psutil.wait_procs(children, timeout=10)
    assert [child for child in left if child.status() != psutil.STATUS_ZOMBIE] == []
    before = {trial.number: trial.outcome for trial in read_trials(study) if trial.outcome}
    done = [n for n, outcome in before.items() if outcome.verdict.reason == "done"]
    assert done
    resumed = kltune("sweep", KITCHEN, *flags, "--workers", "2", "--slots", "2")
    assert resumed.returncode == 0, resumed.stderr[-2000:]
    assert [trial.number for trial in read_trials(study)] == list(range(4))
    for number in done:
        assert read_trial(study / "trials" / f"{number:05d}").attempt == 1


def test_the_same_seed_gives_the_same_numbers_and_another_one_others(tmp_path: Path) -> None:  # D12
    curves = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        study = tmp_path / name
        flags = ("--trials", "1", "--slots", "1", "--workers", "1", "--seed", str(seed))
        run = kltune("sweep", KITCHEN, "--study", study, *flags, *sets(*QUICK, "baselines=[]"))
        assert run.returncode in (0, 3), run.stderr[-2000:]
        rows = read_trial(study / "trials" / "00000").steps
        curves.append(
            [(row["train/proxy_mean"], row["kl/exact_token"], row["train/loss"]) for row in rows]
        )
    assert curves[0] == curves[1]
    assert curves[0] != curves[2]


def test_two_workers_whose_every_trial_fails_are_an_error(tmp_path: Path) -> None:  # B19
    (tmp_path / "broken.py").write_text(
        "calls = 0\n"
        "def gold(completions):\n    return [float(len(text)) for text in completions]\n"
        "def proxy(completions):\n"
        "    global calls\n    calls += 1\n"
        "    if calls > 3:\n        raise ValueError('the reward broke')\n"
        "    return [float(text.count('e')) for text in completions]\n"
    )
    run = kltune(
        "sweep", KITCHEN, "--study", tmp_path / "S", "--trials", "2", "--slots", "2", "--workers", "2",
        *sets(*QUICK, "task={prompts: builtin, proxy: x, gold: y}"),
    )  # fmt: skip
    assert run.returncode == 2  # a task that is none is refused before anything starts
    spec = {
        "name": "broken",
        "task": {"prompts": "prompts.txt", "proxy": "broken.py:proxy", "gold": "broken.py:gold"},
        "model": {"base": "builtin:kitchen"},
        "trainer": {"steps": 6, "prompts": 2, "group_size": 4, "max_new_tokens": 12},
        "search": {"beta": {"log": [0.01, 1]}},
        "evaluate": {"every": 3, "prompts": 4, "samples": 1},
        "budget": {"trials": 2, "slots": 2, "workers": 2},
        "tracking": {"enabled": False},
    }
    (tmp_path / "prompts.txt").write_text(
        "".join(f"how long does rice take , version {i} ?\n" for i in range(24))
    )
    (tmp_path / "broken.yaml").write_text(json.dumps(spec))
    run = kltune("sweep", tmp_path / "broken.yaml", "--study", tmp_path / "B")
    assert run.returncode == 1, run.stderr[-2000:]
    assert "the reward broke" in run.stderr
