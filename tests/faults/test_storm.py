"""`kltune worker`s on PostgreSQL that are killed again and again: every trial is finished once, and MLflow knows it.

Real workers with the built-in model and an MLflow database, where `tests/study/test_many_members.py` has a
fast fake. 50 kills over 40 trials take some minutes, so it is run by hand (`pytest -m long`);
``KLTUNE_STORM=8,8`` is smaller.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from e2e.cli import KITCHEN, command, environment, kltune, sets
from postgres_case import Database, postgres

pytestmark = pytest.mark.long
__all__ = ["postgres"]

KILLS, TRIALS = (int(n) for n in os.environ.get("KLTUNE_STORM", "50,40").split(","))
WORKERS = 3
SPEC = sets(
    "model.base=builtin:kitchen-small", "trainer.steps=12", "trainer.prompts=2", "trainer.group_size=4",
    "evaluate.every=2", "evaluate.prompts=4", "evaluate.samples=1", "evaluate.keep=1", "baselines=[]",
    "search.controller.choice=[fixed]", "search.target_kl=null", "search.horizon=null",
    "budget.wall=null", f"budget.trials={TRIALS}", "budget.workers=1", "pruning.enabled=false",
)  # fmt: skip


def _start(study: Path, url: str, log: Path) -> subprocess.Popen[str]:
    with log.open("a") as stderr:
        return subprocess.Popen(
            command("worker", KITCHEN, "--study", study, "--slots", "1", *SPEC),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr, text=True,
            env={**environment(), "KLTUNE_STORAGE": url}, start_new_session=True,
        )  # fmt: skip


def _endings(study: Path) -> Counter[int]:
    """How often each trial was told as complete."""
    found: Counter[int] = Counter()
    for path in sorted(study.glob("trials/*/events.jsonl")):
        for line in path.read_text().splitlines():
            row = json.loads(line) if line.endswith("}") else {}
            found[int(path.parent.name)] += (
                row.get("event") == "ended" and row.get("state") == "complete"
            )
    return found


def _storm(study: Path, url: str, log: Path) -> int:
    """Workers under fire, dead ones replaced; how many were killed in the middle of their work."""
    chance, kills = random.Random(0), 0
    running = [_start(study, url, log) for _ in range(WORKERS)]
    try:
        while kills < KILLS and sum(n > 0 for n in _endings(study).values()) < TRIALS:
            time.sleep(chance.uniform(0.5, 6.0))
            number = chance.randrange(WORKERS)
            if running[number].poll() is None:
                os.killpg(running[number].pid, signal.SIGKILL)
                running[number].wait()
                kills += 1
            running[number] = _start(study, url, log)
        for process in running:
            assert process.wait(900) == 0, log.read_text()[-3000:]
    finally:
        _end(running)
    return kills


def _end(running: Sequence[subprocess.Popen[str]]) -> None:
    for process in running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _runs(study: Path) -> Counter[str]:
    with closing(sqlite3.connect(study / "mlflow.db")) as database:
        rows = database.execute(
            "SELECT status FROM runs WHERE lifecycle_stage = 'active'"
        ).fetchall()
    return Counter(str(row[0]) for row in rows)


def test_kills_lose_and_double_no_trial_and_leave_no_run_open(
    tmp_path: Path, postgres: Database
) -> None:
    study, log = tmp_path / "study", tmp_path / "log"
    kills = _storm(study, postgres.url, log)
    assert kills >= min(KILLS, 3)
    # Whoever is killed last may leave MLflow behind: any next command on the study brings it up to date.
    after = kltune("worker", study, timeout=300)
    assert after.returncode == 0, after.stderr[-2000:]
    assert _endings(study) == Counter(dict.fromkeys(range(TRIALS), 1))
    for number in range(TRIALS):
        rows = (study / "trials" / f"{number:05d}" / "metrics.jsonl").read_text().splitlines()
        assert {json.loads(row)["step"] for row in rows if row.endswith("}")} == set(range(1, 13))
    assert _runs(study) == Counter({"FINISHED": TRIALS + 1})
    if record := os.environ.get("KLTUNE_STORM_RECORD"):
        Path(record).write_text(json.dumps({"kills": kills, "runs": _runs(study)}))
