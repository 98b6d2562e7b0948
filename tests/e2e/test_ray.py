"""`kltune sweep --on ray` on several nodes: a node dies in the middle, another joins, and every trial is there once."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from e2e.cli import QUICK, kltune, sets, start
from e2e.own_task import own_spec
from ray_case import LocalCluster, local_cluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]

TRIALS = 8
SPEC = sets(*QUICK, f"budget.trials={TRIALS}", "budget.slots=1", "budget.workers=1")
SCORERS = """
import time
from pathlib import Path

STUDY, GATE = Path({study!r}), Path({gate!r})

def gold(completions):
    return [float(len(c)) for c in completions]

def proxy(completions):
    # However quick the machine is, some trials are over and some are not when the node dies.
    while not GATE.exists() and _ended() >= 2:
        time.sleep(0.05)
    return [float(c.count("e")) for c in completions]

def _ended():
    return sum('"ended"' in file.read_text() for file in STUDY.glob("trials/*/events.jsonl"))
"""


def _ended(study: Path) -> list[int]:
    """Trials whose record says that they are over and count."""
    found = []
    for events in sorted(study.glob("trials/*/events.jsonl")):
        rows = [json.loads(line) for line in events.read_text().splitlines() if line.endswith("}")]
        if any(row["event"] == "ended" and row["state"] in ("complete", "pruned") for row in rows):
            found.append(int(events.parent.name))
    return found


def _wait_for(what, seconds: float, process: subprocess.Popen[str], log: Path) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert process.poll() is None, f"it ended early: {log.read_text()[-3000:]}"
        assert time.monotonic() < until, f"it took too long: {log.read_text()[-3000:]}"
        time.sleep(0.2)


def _kill_node(cluster: LocalCluster, lines: Path) -> None:
    """The latest node with all that runs on it: Ray's own processes, and the worker by its number."""
    node = cluster.tell("kill")
    said = lines.read_text()
    number = re.search(rf"worker (\d+): starts on node {node[:8]}", said)
    assert number is not None, said
    pid = re.search(rf"worker {number[1]}: is process (\d+)", said)
    assert pid is not None, said
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(pid[1]), signal.SIGKILL)


def test_a_node_that_dies_costs_no_trial_and_one_that_joins_is_used(tmp_path: Path) -> None:
    study, log, gate = tmp_path / "study", tmp_path / "stderr", tmp_path / "go"
    # The proxy waits, once two trials have ended, until there is a file `gate`.
    spec = own_spec(tmp_path, SCORERS.format(study=str(study), gate=str(gate)))
    with local_cluster(2) as cluster, log.open("w") as stderr:
        where = ("--on", "ray", "--address", cluster.address)
        process = start("sweep", spec, "--study", study, *where, *SPEC, stderr=stderr)
        _wait_for(
            lambda: len(_ended(study)) >= 2 and log.read_text().count("is process") >= 2,
            240,
            process,
            log,
        )
        _kill_node(cluster, log)
        _wait_for(lambda: re.search(r"worker \d+ is lost", log.read_text()), 120, process, log)
        joined = cluster.tell("add")
        _wait_for(lambda: f"starts on node {joined[:8]}" in log.read_text(), 120, process, log)
        gate.touch()
        process.communicate(timeout=300)
        assert process.returncode == 0, log.read_text()[-3000:]
    assert _ended(study) == list(range(TRIALS))
    assert (study / "report.html").is_file()
    stands = json.loads(kltune("status", study, "--json").stdout)
    assert stands["state"] == "finished"
    assert (
        stands["trials"]
        == {"complete": TRIALS}
        | {state: count for state, count in stands["trials"].items() if state == "pruned"}
        or sum(stands["trials"].values()) == TRIALS
    )
