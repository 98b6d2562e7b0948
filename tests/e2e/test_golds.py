"""`kltune sweep` with two golds from a shell: recorded, limited, tracked, and read back by a second run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from e2e.cli import QUICK, ROOT, kltune, sets, strict

from kltune.metrics.jsonl import read_rows
from kltune.trial.record import read_trials

pytestmark = pytest.mark.slow

SPEC = ROOT / "sweeps" / "kitchen-retention.yaml"
NEVER = "objective.also.retention={min: 2}"
"""A share can't be above 1, so no checkpoint may be chosen."""


def sweep(path: Path, trials: int, *overrides: str) -> tuple[int, dict[str, Any]]:
    quick = (*QUICK, "budget.workers=1", "baselines=[]", *overrides)
    flags = ("--study", path, "--json", *sets(*quick))
    done = kltune("sweep", SPEC, "--trials", str(trials), "--slots", "2", *flags)
    assert done.returncode in (0, 3), done.stderr
    return done.returncode, strict(done.stdout)


def test_two_golds_from_spec_to_tracker_and_through_a_restart(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    path = tmp_path / "study"
    code, first = sweep(path, 2)
    assert (code, first["num_trials"]) == (0, 2)
    code, second = sweep(path, 3)
    assert [t["number"] for t in second["trials"]] == [0, 1, 2]
    assert second["trials"][:2] == first["trials"]
    for record in read_trials(path):
        for row in record.evals:
            scores = row["golds_by_prompt"]["retention"]
            assert len(scores) == len(row["gold_by_prompt"]) == 8
            assert all(0 <= score <= 1 for score in scores)
            assert row["eval/gold_retention"] == pytest.approx(sum(scores) / 8)
        samples = read_rows(record.folder / "samples.jsonl")
        assert all(0 <= sample["golds"]["retention"] <= 1 for sample in samples)
    client = MlflowClient(f"sqlite:///{path}/mlflow.db")
    (experiment,) = client.search_experiments(filter_string="name = 'kitchen-retention'")
    runs = client.search_runs([experiment.experiment_id])
    child = next(run for run in runs if "mlflow.parentRunId" in run.data.tags)
    history = client.get_metric_history(child.info.run_id, "eval/gold_retention")
    assert [point.step for point in history] == [0, 3, 6]
    assert client.get_metric_history(child.info.run_id, "eval/gold_retention_se")


def test_a_limit_that_nothing_respects_is_a_normal_end_without_an_answer(tmp_path: Path) -> None:
    code, result = sweep(tmp_path / "study", 2, NEVER, "tracking.enabled=false")
    assert code == 3
    assert result["best"] is None
    assert all(trial["feasible"] is False for trial in result["trials"] if trial["value"])
    assert "limits on KL and retention" in result["recommendation"]["headline"]


def test_a_gold_that_is_not_shipped_is_refused_before_anything_loads(tmp_path: Path) -> None:
    overrides = sets("task.golds=[tone]", "objective.also={}")
    done = kltune("sweep", SPEC, "--study", tmp_path / "study", *overrides)
    assert done.returncode == 2
    assert "task.golds: kitchen has no further gold 'tone'; it ships retention" in done.stderr
    assert not (tmp_path / "study").exists()
