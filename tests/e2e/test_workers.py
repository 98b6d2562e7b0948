"""Several worker processes: Ctrl-C for the whole group ends them cleanly, and the study goes on to the same bits."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from e2e.cli import KITCHEN, kltune, sets, start, wait_for_rows

from kltune.metrics.jsonl import read_json
from kltune.trial.record import TrialRecord, read_trials

pytestmark = pytest.mark.slow

LONG = (
    "trainer.steps=12",
    "evaluate.every=4",
    "evaluate.prompts=8",
    "evaluate.samples=1",
    "trainer.prompts=2",
    "pruning.enabled=false",
    "baselines=[]",
    "search.beta={log: [0.05, 0.5]}",
    "tracking.enabled=false",
)


def curve(record: TrialRecord) -> list[dict[str, Any]]:
    """Everything measured in every step, times left out."""
    skipped = ("attempt", "time")
    return [
        {k: v for k, v in row.items() if k not in skipped and not k.startswith("time/")}
        for row in (*record.steps, *record.evals)
    ]


def are_gone(processes: list[psutil.Process]) -> bool:
    """Whether they end within seconds; a zombie is gone, whoever adopts it has not looked yet."""
    for _ in range(50):
        left = [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
        if not left:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)], ids=["ctrl-c", "sigterm"]
)
def test_a_signal_to_the_whole_group_ends_the_workers_and_the_study_goes_on(
    tmp_path: Path,
    number: signal.Signals,
    code: int,
    in_one_process: list[list[dict[str, Any]]],
) -> None:
    path = tmp_path / "S"
    flags = ["--study", path, "--trials", "2", *sets(*LONG)]
    process = start("sweep", KITCHEN, *flags, "--workers", "2")
    wait_for_rows(path / "trials" / "00001" / "metrics.jsonl", 6, process)
    others = psutil.Process(process.pid).children(recursive=True)
    assert others
    os.killpg(process.pid, number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == code, stderr
    assert "Traceback" not in stderr
    assert are_gone(others)
    assert (path / "report.html").exists()
    reasons = {r.outcome.verdict.reason.value for r in read_trials(path) if r.outcome}
    assert reasons == {"interrupted"}
    resumed = kltune("sweep", KITCHEN, *flags, "--workers", "2")
    assert resumed.returncode == 0, resumed.stderr
    assert read_json(path / "placement.json")["workers"] == 2
    records = read_trials(path)
    assert [r.attempt for r in records] == [2, 2]
    assert [curve(r) for r in records] == in_one_process


@pytest.fixture(scope="module")
def in_one_process(tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    """Curves of the same trials, undisturbed, one after the other."""
    path = tmp_path_factory.mktemp("one") / "S"
    flags = ["--study", path, "--trials", "2", *sets(*LONG), "--workers", "1"]
    done = kltune("sweep", KITCHEN, *flags)
    assert done.returncode == 0, done.stderr
    return [curve(record) for record in read_trials(path)]
