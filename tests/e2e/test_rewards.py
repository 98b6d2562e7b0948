"""Rewards of the user's through a whole sweep: one that hangs, one with errors that are passed over, a sum of several."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from e2e.cli import kltune, strict
from e2e.own_task import own_spec

from kltune.trial.record import read_trials

pytestmark = pytest.mark.slow

SCORERS = """
import time
calls = 0

def gold(completions):
    return [float(len(c)) for c in completions]

def hangs(completions):
    global calls
    calls += 1
    if calls == 15:
        time.sleep(60)
    return [float(c.count("e")) for c in completions]

def compute_score(data_source, solution_str, ground_truth=None, extra_info=None):
    if solution_str.count("o") % 3 == 1:
        raise ValueError("odd o")
    return {"score": solution_str.count("e")}

async def short(completions, **columns):
    return [-float(len(c)) for c in completions]
"""


@pytest.mark.parametrize("isolate", [False, True])
def test_a_reward_that_hangs_costs_its_own_trial_only(tmp_path: Path, isolate: bool) -> None:
    # Field case B25. One call to probe, one for sigma_R per batch, then one a step and one an evaluation.
    spec = own_spec(tmp_path, SCORERS, proxy="rewards.py:hangs", timeout="1s", isolate=isolate)
    start = time.monotonic()
    done = kltune("sweep", spec, "--study", tmp_path / "S", "--json")
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - start < 50.0
    trials = strict(done.stdout)["trials"]
    failed = [trial for trial in trials if trial["state"] == "failed"]
    assert len(failed) == 1
    assert "rewards.py:hangs did not come back within 1 s (task.timeout)" in failed[0]["detail"]
    assert [t["state"] for t in trials].count("complete") == 2


def test_parts_of_a_sum_and_errors_that_are_passed_over_are_on_record(tmp_path: Path) -> None:
    parts = [
        {"function": "rewards.py:compute_score", "name": "e"},
        {"function": "rewards.py:short", "weight": 0.1},
    ]
    spec = own_spec(
        tmp_path, SCORERS, proxy={"weighted": parts}, errors={"action": "skip", "share": 0.9}
    )
    done = kltune("sweep", spec, "--study", tmp_path / "S", "--trials", "1")
    assert done.returncode == 0, done.stderr
    (record,) = read_trials(tmp_path / "S")
    step = record.steps[0]
    assert {"train/part_e", "train/part_short"} <= step.keys()
    assert record.score_errors is not None
    assert "ValueError: odd o" in record.score_errors.examples[0]
    counted = sum(row.get("train/score_errors", 0) for row in record.steps)
    assert record.score_errors.count == counted
    judged = sum(row.get("eval/score_errors", 0) for row in record.evals)
    assert record.score_errors.judged == judged > 0
    report = (tmp_path / "S" / "report.html").read_text(encoding="utf-8")
    assert "Errors of the proxy" in report
