"""Many short trials in one process: memory and open files stay where they were after the first ones.

400 of them take some minutes on two cores, so it is run by hand (`pytest -m long`); ``KLTUNE_SOAK=70`` runs fewer.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import psutil
import pytest
from e2e.cli import KITCHEN, sets, start

pytestmark = pytest.mark.long

TRIALS = int(os.environ.get("KLTUNE_SOAK", "400"))
WARM = max(10, TRIALS // 8)
"""Trials after which everything that is allocated once has been."""
LIMIT = 1.05


def test_memory_and_open_files_stay_flat_over_many_trials(tmp_path: Path) -> None:
    study, log = tmp_path / "study", tmp_path / "stderr"
    with log.open("w") as stderr:  # nobody reads while it runs: a pipe would be full
        process = start(
            *("sweep", KITCHEN, "--study", study, "--trials", str(TRIALS), "--slots", "1", "--workers", "1"),
            *sets(
                "model.base=builtin:kitchen-small", "trainer.steps=3", "trainer.prompts=2", "budget.wall=null",
                "trainer.group_size=4", "evaluate.every=3", "evaluate.prompts=4", "evaluate.samples=1",
                "evaluate.keep=1", "search.controller.choice=[fixed]", "search.target_kl=null",
                "search.horizon=null", "baselines=[]",
            ),
            stderr=stderr,
        )  # fmt: skip
    rows: list[tuple[int, float, int]] = []
    watched = psutil.Process(process.pid)
    try:
        while process.poll() is None:
            ended = len(list(study.glob("trials/*/checkpoints/best"))) if study.is_dir() else 0
            if not rows or ended > rows[-1][0]:
                with watched.oneshot():
                    rows.append((ended, watched.memory_info().rss / 2**20, watched.num_fds()))
            time.sleep(0.2)
    except psutil.NoSuchProcess:
        pass
    process.communicate()
    assert process.returncode in (0, 3), log.read_text()[-2000:]
    record = os.environ.get("KLTUNE_SOAK_RECORD")
    if record:
        Path(record).write_text(json.dumps(rows))
    # The report at the end is another piece of work: only what was seen while trials ran counts.
    warm = [row for row in rows if WARM <= row[0] <= TRIALS - 2]
    assert warm, rows
    first = sorted(row[1] for row in warm[:5])[len(warm[:5]) // 2]
    last = sorted(row[1] for row in warm[-5:])[len(warm[-5:]) // 2]
    assert last <= LIMIT * first, (
        f"{first:.0f} MiB after {warm[0][0]} trials, {last:.0f} after {warm[-1][0]}"
    )
    assert max(row[2] for row in warm[-5:]) <= max(row[2] for row in warm[:5]) + 2, rows
