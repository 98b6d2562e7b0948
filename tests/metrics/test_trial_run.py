from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kltune.metrics.jsonl import append_rows, read_json
from kltune.metrics.runs import Runs
from kltune.metrics.tracker import resolve_tracker

# MLflow's own use of SQLAlchemy, not ours.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning")


@pytest.fixture
def trial(tmp_path: Path, bench: Any) -> Any:
    trial = bench.Trial(bench.study(tmp_path / "kitchen"), 1)
    trial.config()
    return trial


@pytest.fixture
def runs(trial: Any, server: Any) -> Any:
    study = trial.folder.parents[1]
    runs = Runs.open(study, resolve_tracker(study, server.uri, {}), "kitchen", [])
    yield runs
    runs.leave()


def _steps(server: Any, name: str) -> list[int]:
    return [step for _, key, step in server.metrics if key == name]


def test_fifty_metrics_over_twenty_steps_are_few_requests(
    trial: Any, server: Any, runs: Any
) -> None:
    from kltune.metrics.step_names import STEP

    names = [metric[0] for metric in STEP][:50]
    for step in range(1, 21):
        head = {"trial": 1, "attempt": 1, "step": step, "time": 1e9 + step}
        row = {**head, **dict.fromkeys(names, 0.5), "ctrl/beta": 0.1}
        append_rows(trial.folder / "metrics.jsonl", [row])
        runs.sync(trial.folder)  # as if each step were evaluated
    assert _steps(server, "ctrl/beta") == list(range(1, 21))
    assert server.metric_requests == 20


def test_a_long_record_goes_in_parts_and_an_outage_between_them_repeats_none(
    trial: Any, server: Any, runs: Any
) -> None:
    from kltune.metrics.outage import TrackerOutage

    trial.steps(1, 1, 1200)  # of two metrics each
    server.falls_after_metrics = True
    with pytest.raises(TrackerOutage):
        runs.sync(trial.folder)
    server.falls_after_metrics = server.is_down = False
    runs.sync(trial.folder)
    assert _steps(server, "ctrl/beta") == list(range(1, 1201))
    assert _steps(server, "eval/gold") == [1200]
    assert server.metric_requests == 3


def test_samples_are_read_from_where_the_last_ones_ended(
    trial: Any, server: Any, runs: Any
) -> None:
    trial.steps(1, 1, 10)
    runs.sync(trial.folder)
    side = read_json(trial.folder / "mlflow.json")
    assert side["offsets"]["samples.jsonl"] == (trial.folder / "samples.jsonl").stat().st_size
    # The samples of an evaluation whose row is not there yet.
    head = {"trial": 1, "attempt": 1, "time": 1e9}
    append_rows(trial.folder / "samples.jsonl", [{**head, "step": 30, "completion": "early"}])
    trial.steps(1, 11, 20)
    runs.sync(trial.folder)
    append_rows(trial.folder / "evals.jsonl", [{**head, "step": 30, "eval/gold": 0.5}])
    runs.sync(trial.folder)
    folder = server.artifacts / server.run_ids[1] / "samples"
    assert sorted(path.name for path in folder.iterdir()) == [
        "step_00010.json",
        "step_00020.json",
        "step_00030.json",
    ]


def test_a_run_that_is_gone_is_made_anew_with_all_that_was_in_it(
    trial: Any, server: Any, runs: Any
) -> None:
    trial.steps(1, 1, 10)
    runs.sync(trial.folder)
    server.run_ids.remove(server.run_ids[1])
    server.metrics.clear()
    trial.steps(1, 11, 20)
    runs.sync(trial.folder)
    assert _steps(server, "ctrl/beta") == list(range(1, 21))
    assert len(server.run_ids) == 2


def test_samples_are_listed_for_the_interface_once_a_trial_has_ended(
    trial: Any, server: Any, runs: Any
) -> None:
    trial.steps(1, 1, 10)
    runs.sync(trial.folder)
    child = server.run_ids[1]
    assert "mlflow.loggedArtifacts" not in server.tags[child]
    trial.end(1, "complete", "done", "all 10 steps")
    assert runs.sync(trial.folder)
    shown = json.loads(server.tags[child]["mlflow.loggedArtifacts"])
    assert shown == [{"path": "samples/step_00010.json", "type": "table"}]
    assert server.status[child] == "FINISHED"


def test_a_trial_whose_process_died_is_ended_as_that(trial: Any, server: Any, runs: Any) -> None:
    assert not runs.sync(trial.folder, lambda num_events: num_events != 1)
    assert server.status[server.run_ids[1]] == "RUNNING"
    assert not runs.sync(trial.folder, lambda num_events: num_events == 1)  # it may go on
    assert server.status[server.run_ids[1]] == "KILLED"
    assert "process died" in server.tags[server.run_ids[1]]["kltune.stop_detail"]
