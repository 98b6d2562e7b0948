"""Nothing is lost: signals, kill -9, and a scorer that raises."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from e2e.cli import KITCHEN, kltune, sets, start, strict, wait_for_rows
from e2e.own_task import own_spec

from kltune.trial.record import TrialRecord, read_trial, read_trials

pytestmark = pytest.mark.slow

LONG = (
    "trainer.steps=24",
    "evaluate.every=4",
    "evaluate.prompts=8",
    "evaluate.samples=1",
    "trainer.prompts=2",
    "pruning.enabled=false",
    "search.controller=proportional",
)


def curve(record: TrialRecord) -> list[dict[str, Any]]:
    """Everything measured in every step, times left out."""
    rows = [*record.steps, *record.evals]
    skipped = ("attempt", "time")
    return [
        {k: v for k, v in row.items() if k not in skipped and not k.startswith("time/")}
        for row in rows
    ]


def flags(path: Path) -> list[str | Path]:
    alone = ("baselines=[]", "search.beta={log: [0.05, 0.5]}", "tracking.enabled=false")
    return ["--study", path, "--trials", "1", *sets(*LONG, *alone)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    path = tmp_path_factory.mktemp("undisturbed") / "S"
    done = kltune("sweep", KITCHEN, *flags(path))
    assert done.returncode == 0, done.stderr
    return curve(read_trial(path / "trials" / "00000"))


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 75), (signal.SIGKILL, -9)],
    ids=["ctrl-c", "sigterm", "kill-9"],
)
def test_a_killed_and_resumed_trial_has_the_undisturbed_curve(
    tmp_path: Path, undisturbed: list[dict[str, Any]], number: signal.Signals, code: int
) -> None:
    path = tmp_path / "S"
    process = start("sweep", KITCHEN, *flags(path))
    wait_for_rows(path / "trials" / "00000" / "metrics.jsonl", 10, process)
    os.kill(process.pid, number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == code, stderr
    assert "Traceback" not in stderr
    resumed = kltune("sweep", KITCHEN, *flags(path))
    assert resumed.returncode == 0, resumed.stderr
    assert "goes on from step" in resumed.stderr
    record = read_trial(path / "trials" / "00000")
    assert record.attempt == 2
    assert curve(record) == undisturbed
    assert len(read_trials(path)) == 1


def test_finished_trials_survive_ctrl_c_and_their_mlflow_runs_end(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    path = tmp_path / "S"
    args = ["--study", path, "--trials", "5", *sets(*LONG, "trainer.steps=12")]
    process = start("sweep", KITCHEN, *args)
    wait_for_rows(path / "trials" / "00001" / "metrics.jsonl", 2, process)
    os.kill(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    first, second = (read_trial(path / "trials" / f"0000{i}") for i in (0, 1))
    assert first.outcome is not None
    assert first.outcome.verdict.reason == "done"
    assert second.outcome is not None
    assert second.outcome.verdict.reason == "interrupted"
    client = MlflowClient(f"sqlite:///{path}/mlflow.db")
    experiment = client.get_experiment_by_name("kitchen-grpo")
    assert experiment is not None
    statuses = [run.info.status for run in client.search_runs([experiment.experiment_id])]
    assert sorted(statuses) == ["FINISHED", "KILLED", "KILLED"]


SCORERS = """
def gold(completions):
    return [float(len(c)) for c in completions]

def proxy(prompts, completions):
    global calls
    calls = globals().get("calls", 0) + 1
    if {when}:
        raise ValueError("the reward broke")
    return [float(c.count("e")) for c in completions]
"""


def test_a_reward_that_raises_costs_its_own_trial_only(tmp_path: Path) -> None:
    # One call for sigma_R per batch, then one a step and one an evaluation: call 14 is inside a trial.
    spec = own_spec(tmp_path, SCORERS.format(when="calls == 14"))
    done = kltune("sweep", spec, "--study", tmp_path / "S", "--json")
    assert done.returncode == 0, done.stderr
    trials = strict(done.stdout)["trials"]
    failed = [trial for trial in trials if trial["state"] == "failed"]
    assert len(failed) == 1
    assert "the reward broke" in failed[0]["detail"]
    assert [t["state"] for t in trials].count("complete") == 2


def test_a_reward_that_always_raises_is_an_error_with_its_own_words(tmp_path: Path) -> None:
    spec = own_spec(tmp_path, SCORERS.format(when="calls > 4"))
    done = kltune("sweep", spec, "--study", tmp_path / "S")
    assert done.returncode == 1, done.stderr
    assert "the reward broke" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reward_that_exits_or_prints_is_an_error_and_leaves_json_alone(tmp_path: Path) -> None:
    spec = own_spec(tmp_path, SCORERS.format(when="print('noise') or calls == 14"))
    text = (tmp_path / "rewards.py").read_text(encoding="utf-8")
    exits = text.replace('raise ValueError("the reward broke")', "raise SystemExit(0)")
    (tmp_path / "rewards.py").write_text(exits, encoding="utf-8")
    done = kltune("sweep", spec, "--study", tmp_path / "S", "--json")
    assert done.returncode == 0, done.stderr
    states = [trial["state"] for trial in strict(done.stdout)["trials"]]
    assert sorted(states) == ["complete", "complete", "failed"]
    assert "noise" in done.stderr


def test_what_fails_before_the_first_trial_leaves_no_folder(tmp_path: Path) -> None:
    spec = own_spec(tmp_path, SCORERS.format(when="True"))
    done = kltune("sweep", spec, "--study", tmp_path / "S")
    assert done.returncode == 2
    assert "error: task.proxy: " in done.stderr
    assert "the reward broke" in done.stderr
    assert not (tmp_path / "S").exists()


def test_a_password_in_the_tracking_address_reaches_no_file_and_no_output(tmp_path: Path) -> None:
    spec = own_spec(tmp_path, SCORERS.format(when="False"))
    uri = "tracking={enabled: true, mlflow: 'http://u:S3CRET@127.0.0.1:9'}"
    done = kltune("sweep", spec, "--study", tmp_path / "S", "--trials", "1", "--set", uri)
    assert done.returncode == 0, done.stderr
    assert "CRET" not in done.stdout + done.stderr
    files = [path for path in (tmp_path / "S").rglob("*") if path.is_file()]
    assert [path.name for path in files if b"CRET" in path.read_bytes()] == []


def test_a_wall_budget_of_a_second_is_exit_0(tmp_path: Path) -> None:
    spec = own_spec(tmp_path, SCORERS.format(when="False"))
    flags = ["--study", tmp_path / "S", "--set", "budget.wall=1s"]
    done = kltune("sweep", spec, *flags, "--trials", "50")
    assert done.returncode == 0, done.stderr
