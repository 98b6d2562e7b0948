"""Real searches with MLflow on: stopped, killed, refused a metric, with several members; what MLflow shows then."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from e2e.cli import KITCHEN, command, environment, kltune, sets, wait_for_rows
from tracker_case import FakeServer

from kltune.metrics.jsonl import read_json
from kltune.trial.outcome import STATE_OF, TrialState
from kltune.trial.record import read_trials

pytestmark = pytest.mark.slow

QUICK = (
    "evaluate.every=3",
    "evaluate.prompts=8",
    "evaluate.samples=1",
    "trainer.prompts=2",
    "trainer.max_new_tokens=12",
    "pruning.enabled=false",
    "baselines=[]",
    "budget.workers=1",
    "budget.slots=1",
)
Runs = dict[str, tuple[str, int | None]]


def flags(study: Path, trials: int, steps: int, *more: str) -> list[str | Path]:
    counts = (f"budget.trials={trials}", f"trainer.steps={steps}")
    return ["--study", study, *sets(*QUICK, *counts, *more)]


def begin(*args: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*args),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment(), "KLTUNE_LEASE": "2"},
        start_new_session=True,
    )


def end(process: subprocess.Popen[str]) -> str:
    said = process.communicate(timeout=400)[1]
    assert "Traceback" not in said, said
    return said


def runs(study: Path) -> Runs:
    """Status and end of each run that is not in the trash: the parent's, and the children's by trial number."""
    with closing(sqlite3.connect(study / "mlflow.db", timeout=60)) as database:
        found = database.execute(
            "SELECT run_uuid, status, end_time FROM runs WHERE lifecycle_stage = 'active'"
        ).fetchall()
        tags = database.execute("SELECT run_uuid, key, value FROM tags").fetchall()
    numbers = {run: value for run, key, value in tags if key == "kltune.trial_number"}
    named = {numbers.get(run, "parent"): (status, ended) for run, status, ended in found}
    assert len(named) == len(found), "two parents, or two children of one trial"
    return named


def wait_until(holds: Callable[[], bool], *processes: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 240
    while not holds():
        for process in processes:
            assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < until, "did not come to hold"
        time.sleep(0.1)


def has_run(study: Path, number: int) -> bool:
    path = study / "trials" / f"{number:05d}" / "mlflow.json"
    return path.is_file() and read_json(path).get("run_id") is not None


def test_a_search_that_is_stopped_or_killed_leaves_no_run_running(tmp_path: Path) -> None:
    study = tmp_path / "S"
    args = ("sweep", KITCHEN, *flags(study, 1, 60))
    process = begin(*args)
    wait_until(lambda: has_run(study, 0), process)  # field case C4
    process.send_signal(signal.SIGTERM)
    said = end(process)
    assert process.returncode == 75, said
    assert runs(study).keys() == {"parent", "0"}
    for status, ended in runs(study).values():
        assert status == "KILLED"
        assert ended
    process = begin(*args)
    wait_until(lambda: runs(study)["0"][0] == "RUNNING", process)
    process.kill()
    process.communicate()
    assert [status for status, _ in runs(study).values()] == ["RUNNING"] * 2
    done = kltune(*args)  # the next start mends it
    assert done.returncode == 0, done.stderr
    assert {name: status for name, (status, _) in runs(study).items()} == {
        "parent": "FINISHED",
        "0": "FINISHED",
    }


def test_a_server_that_refuses_one_metric_costs_that_metric_and_no_trial(tmp_path: Path) -> None:
    study, server = tmp_path / "S", FakeServer(tmp_path / "server")

    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    server.refused_metric = "train/loss"  # field case C8
    done = kltune("sweep", KITCHEN, *flags(study, 1, 6, f"tracking.mlflow={server.uri}"))
    server.shutdown()
    server.server_close()
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("MLflow refused values of train/loss") == 1
    (record,) = read_trials(study)
    assert record.outcome is not None
    assert STATE_OF[record.outcome.verdict.reason] is TrialState.COMPLETE
    names = {name for _, name, _ in server.metrics}
    assert "train/loss" not in names
    assert {"ctrl/beta", "eval/gold", "kl/exact_token"} <= names
    assert set(server.status.values()) == {"FINISHED"}


@pytest.mark.parametrize("killed", ["nobody", "the sweep", "the worker"])
def test_members_have_one_parent_and_a_child_for_each_trial(tmp_path: Path, killed: str) -> None:
    study = tmp_path / "S"
    lead = begin("sweep", KITCHEN, *flags(study, 4, 30))
    wait_for_rows(study / "trials" / "00000" / "metrics.jsonl", 1, lead)
    worker = begin("worker", study)
    wait_until(lambda: has_run(study, 0) and has_run(study, 1), lead, worker)
    left = [lead, worker]
    if killed != "nobody":
        victim = lead if killed == "the sweep" else worker
        left.remove(victim)
        os.kill(victim.pid, signal.SIGKILL)
        victim.communicate()
    for process in left:
        said = end(process)
        assert process.returncode == 0, said
    found = {name: status for name, (status, _) in runs(study).items()}
    names = ["parent", *(str(record.number) for record in read_trials(study))]
    assert len(names) == 5
    assert found == dict.fromkeys(names, "FINISHED")
