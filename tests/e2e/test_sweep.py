"""`kltune sweep` from a shell: results, resumption, refusals, and what other tools see of a study."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from e2e.cli import KITCHEN, QUICK, kltune, sets, strict

pytestmark = pytest.mark.slow

FIELDS = {
    "number", "params", "state", "stop_reason", "feasible", "gold_start", "gold_peak", "gold_final",
    "gold_se", "kl_token", "kl_seq",
}  # fmt: skip


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Six trials in three slots, as JSON."""
    path = tmp_path_factory.mktemp("a folder é") / "A"
    flags = ("--study", path, "--slots", "3", "--json", *sets(*QUICK))
    done = kltune("sweep", KITCHEN, "--trials", "6", *flags)
    assert done.returncode == 0, done.stderr
    return path, strict(done.stdout)


def test_the_result_on_stdout_is_strict_json_with_every_trial(
    study: tuple[Path, dict[str, Any]],
) -> None:
    path, result = study
    assert [trial["number"] for trial in result["trials"]] == [0, 1, 2, 3, 4, 5]
    assert all(set(trial) >= FIELDS for trial in result["trials"])
    assert result["best"]["number"] in range(6)
    assert Path(result["report"]) == path / "report.html"
    assert all((path / name).exists() for name in ("report.html", "report.md", "report.json"))
    assert {trial["state"] for trial in result["trials"]} <= {"complete", "pruned"}


def test_step_0_kl_is_exactly_0_in_every_trial(study: tuple[Path, dict[str, Any]]) -> None:
    from kltune.trial.record import read_trials

    for record in read_trials(study[0]):
        assert record.evals[0]["step"] == 0
        assert record.evals[0]["eval/kl_token"] == 0.0
        assert record.evals[0]["eval/kl_seq"] == 0.0
        assert record.steps[0]["kl/exact_token"] == 0.0
        assert record.evals[-1]["eval/kl_token"] > 0.0


def test_mlflow_sees_one_parent_and_a_child_per_trial_with_mapped_states(
    study: tuple[Path, dict[str, Any]],
) -> None:
    from mlflow import MlflowClient

    path, result = study
    client = MlflowClient(f"sqlite:///{path}/mlflow.db")
    experiment = client.get_experiment_by_name("kitchen-grpo")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], max_results=100)
    parents = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    children = [run for run in runs if "mlflow.parentRunId" in run.data.tags]
    assert len(parents) == 1
    assert parents[0].info.status == "FINISHED"
    assert {run.data.tags["mlflow.parentRunId"] for run in children} == {parents[0].info.run_id}
    expected = {"complete": "FINISHED", "pruned": "KILLED"}
    assert sorted(run.info.status for run in children) == sorted(
        expected[trial["state"]] for trial in result["trials"]
    )
    golds = client.get_metric_history(children[0].info.run_id, "eval/gold")
    assert [point.step for point in golds] == [0, 3, 6]


def test_optuna_opens_the_study_with_its_own_tools(study: tuple[Path, dict[str, Any]]) -> None:
    import optuna

    path, result = study
    opened = optuna.load_study(study_name="kitchen-grpo", storage=f"sqlite:///{path}/study.db")
    states = sorted(trial.state.name.lower() for trial in opened.get_trials())
    assert states == sorted(trial["state"] for trial in result["trials"])
    complete = [t for t in opened.get_trials() if t.state.name == "COMPLETE"]
    assert all(trial.constraints for trial in complete)


def test_a_copied_study_opens_with_its_samples_after_the_original_is_deleted(
    study: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    from mlflow import MlflowClient
    from mlflow.artifacts import download_artifacts

    from kltune.metrics.tracker import reroot

    original = tmp_path / "original"
    shutil.copytree(study[0], original)
    copy = tmp_path / "elsewhere" / "copy"
    shutil.copytree(original, copy)
    shutil.rmtree(original)
    report = kltune("report", copy, "--json")
    assert report.returncode == 0, report.stderr
    assert len(strict(report.stdout)["trials"]) == len(study[1]["trials"])
    reroot(copy)
    uri = f"sqlite:///{copy}/mlflow.db"
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("kitchen-grpo")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    child = next(run for run in runs if "mlflow.parentRunId" in run.data.tags)
    found = [entry.path for entry in client.list_artifacts(child.info.run_id)]
    sample = next(path for path in found if "sample" in path)
    local = download_artifacts(run_id=child.info.run_id, artifact_path=sample, tracking_uri=uri)
    assert str(copy) in str(local) or Path(local).exists()


def test_the_same_command_with_more_trials_runs_only_the_new_ones(
    study: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    path = tmp_path / "B"
    shutil.copytree(study[0], path)
    before = {p: p.stat().st_mtime_ns for p in path.glob("trials/*/metrics.jsonl")}
    flags = ("--study", path, "--slots", "3", "--json", *sets(*QUICK))
    done = kltune("sweep", KITCHEN, "--trials", "8", *flags)
    assert done.returncode == 0, done.stderr
    result = strict(done.stdout)
    assert [trial["number"] for trial in result["trials"]] == list(range(8))
    assert {p: p.stat().st_mtime_ns for p in before} == before
    assert result["trials"][:6] == study[1]["trials"]


def test_a_broken_mlflow_database_makes_way_and_is_refilled(
    study: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    from mlflow import MlflowClient

    path = tmp_path / "C"
    shutil.copytree(study[0], path)
    (path / "mlflow.db").write_bytes(b"no database at all" * 300)
    done = kltune("sweep", KITCHEN, "--trials", "6", "--study", path, *sets(*QUICK))
    assert done.returncode == 0, done.stderr
    assert list(path.glob("mlflow.db.broken-*"))
    client = MlflowClient(f"sqlite:///{path}/mlflow.db")
    experiment = client.get_experiment_by_name("kitchen-grpo")
    assert experiment is not None
    assert len(client.search_runs([experiment.experiment_id])) == 7


def test_a_study_of_another_spec_is_left_alone(study: tuple[Path, dict[str, Any]]) -> None:
    path = study[0]
    database = (path / "study.db").read_bytes()
    flags = ("--study", path, *sets(*QUICK, "search.penalty=k2-loss"))
    done = kltune("sweep", KITCHEN, *flags)
    assert done.returncode == 2
    assert "search.penalty" in done.stderr
    assert "Traceback" not in done.stderr
    assert (path / "study.db").read_bytes() == database


def test_no_feasible_trial_is_exit_3_with_advice(tmp_path: Path) -> None:
    flags = ("--trials", "4", "--study", tmp_path / "S", "--json")
    limits = ("objective.kl_limit=1e-9", "guards.kl.limit=10")
    done = kltune("sweep", KITCHEN, *flags, *sets(*QUICK, *limits))
    assert done.returncode == 3, done.stderr
    assert strict(done.stdout)["best"] is None
    assert "kl_limit" in done.stderr


def test_a_dry_run_starts_nothing(tmp_path: Path) -> None:
    done = kltune("sweep", KITCHEN, "--dry-run", "--study", tmp_path / "S", *sets(*QUICK))
    assert done.returncode == 0, done.stderr
    assert "nothing was started" in done.stdout
    assert not (tmp_path / "S").exists()
