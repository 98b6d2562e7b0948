from __future__ import annotations

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kltune.metrics.jsonl import read_json
from kltune.metrics.tracker import reroot

# MLflow's own use of SQLAlchemy, not ours.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning")

_ENDINGS = {
    1: ("complete", "done", "all 20 steps", "FINISHED"),
    2: ("complete", "kl_limit", "kl 0.612 > 0.5 nats/token for 3 steps", "FINISHED"),
    3: ("failed", "error", "ValueError: no", "FAILED"),
    4: ("interrupted", "interrupted", "SIGTERM", "KILLED"),
    5: ("pruned", "pruned", "gold 0.1 < 0.3 of 5 peers at step 10", "KILLED"),
}


@pytest.fixture
def new_study(tmp_path: Path, bench: Any) -> Path:
    return bench.study(tmp_path / "a b é" / "kitchen")


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory: pytest.TempPathFactory, bench: Any) -> Path:
    """A study of five trials, each with another ending, that was mirrored as it ran."""
    study = bench.study(tmp_path_factory.mktemp("a b é") / "kitchen")
    (study / "report.html").write_text("<html>")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_RUN_ID", "0" * 32)  # belongs to somebody else
        patch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "1")
        mirror = bench.mirror(study)
        mirror.start()
        trials = [bench.Trial(study, number) for number in _ENDINGS]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda trial: _run(mirror, trial), trials))
        mirror.log_study({"study/bookkeeping_frac": 0.02}, step=5)
        time.sleep(2.5)
        assert mirror.close("FINISHED", [study / "report.html"])
    assert mirror.busy_s > 0
    return study


def _run(mirror: Any, trial: Any) -> None:
    trial.config()
    mirror.notice(trial.folder)
    for last in (10, 20):
        trial.steps(1, last - 9, last)
        mirror.notice(trial.folder)
    trial.end(1, *_ENDINGS[trial.number][:3])
    mirror.notice(trial.folder)


def test_a_study_is_one_parent_with_a_child_for_each_trial(bench: Any, mirrored: Path) -> None:
    parent, children = bench.runs(mirrored)
    assert children.keys() == _ENDINGS.keys()
    for child in children.values():
        assert child.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert bench.client(mirrored).search_runs(["0"]) == []


def test_every_ending_has_its_status_and_its_words(bench: Any, mirrored: Path) -> None:
    parent, children = bench.runs(mirrored)
    for number, (state, reason, detail, status) in _ENDINGS.items():
        run = children[number]
        assert run.info.status == status
        assert (run.info.start_time, run.info.end_time) == (1_000_000_000_000, 1_000_000_020_000)
        assert run.data.tags["kltune.state"] == state
        assert run.data.tags["kltune.stop_reason"] == reason
        assert run.data.tags["kltune.stop_detail"] == detail
    assert parent.info.status == "FINISHED"
    assert parent.info.end_time is not None


def test_every_finite_value_arrives_once_at_its_step(bench: Any, mirrored: Path) -> None:
    run_id = bench.runs(mirrored)[1][1].info.run_id
    client = bench.client(mirrored)
    history = client.get_metric_history(run_id, "ctrl/beta")
    assert [metric.step for metric in history] == list(range(1, 21))
    loss = client.get_metric_history(run_id, "train/loss")
    assert [metric.step for metric in loss] == [step for step in range(1, 21) if step != 3]
    assert [m.step for m in client.get_metric_history(run_id, "eval/gold")] == [10, 20]


def test_params_hold_setting_and_units(bench: Any, mirrored: Path) -> None:
    parent, children = bench.runs(mirrored)
    assert children[2].data.params["beta"] == "0.1"
    assert children[2].data.params["beta_unit"] == "reward"
    assert parent.data.params["budget.trials"] == "5"


def test_the_parent_lists_datasets_files_and_the_report(bench: Any, mirrored: Path) -> None:
    parent = bench.runs(mirrored)[0]
    listed = {(entry.tags[0].value, entry.dataset.digest) for entry in parent.inputs.dataset_inputs}
    assert listed == {("train", f"{'train':0<36}"), ("test", f"{'test':0<36}")}
    files = {item.path for item in bench.client(mirrored).list_artifacts(parent.info.run_id)}
    assert files == {"spec.yaml", "resolved.json", "env.json", "report.html"}
    assert parent.data.metrics["study/bookkeeping_frac"] == 0.02
    assert parent.data.metrics["study/trials_ended"] == 4  # the interrupted one goes on later


def test_the_parent_has_system_metrics(bench: Any, mirrored: Path) -> None:
    metrics = bench.runs(mirrored)[0].data.metrics
    assert "system/cpu_utilization_percentage" in metrics


def test_samples_are_tables_that_a_copy_opens_without_the_original(
    bench: Any, mirrored: Path, tmp_path: Path
) -> None:
    original = tmp_path / "one"
    shutil.copytree(mirrored, original)
    reroot(original)
    copy = tmp_path / "ä two" / "kitchen"
    shutil.copytree(original, copy)
    shutil.rmtree(original)
    assert reroot(copy)
    run = bench.runs(copy)[1][1]
    shown = json.loads(run.data.tags["mlflow.loggedArtifacts"])
    assert {"path": "samples/step_00010.json", "type": "table"} in shown
    path = bench.client(copy).download_artifacts(run.info.run_id, "samples/step_00010.json")
    table = json.loads(Path(path).read_text(encoding="utf-8"))
    row = dict(zip(table["columns"], table["data"][0], strict=True))
    assert row["prompt"] == "Wie lange? é"
    assert row["completion"] == "10 min"


def test_runs_of_a_dead_process_are_ended_and_go_on_when_resumed(
    bench: Any, new_study: Path
) -> None:
    first = bench.mirror(new_study)
    first.start()
    trial = bench.Trial(new_study, 1)
    trial.config()
    trial.steps(1, 1, 10)
    first.notice(trial.folder)
    first.close("KILLED", is_last=False)
    assert bench.runs(new_study)[1][1].info.status == "RUNNING"  # as a killed process leaves it
    run_id = read_json(trial.folder / "mlflow.json")["run_id"]

    second = bench.mirror(new_study)
    second.start()
    bench.wait(lambda: bench.runs(new_study)[1][1].info.status == "KILLED")
    assert "process died" in bench.runs(new_study)[1][1].data.tags["kltune.stop_detail"]
    trial.config(attempt=2, start=8, beta=0.3)
    second.notice(trial.folder)
    bench.wait(lambda: bench.runs(new_study)[1][1].info.status == "RUNNING")
    trial.steps(2, 9, 20)
    trial.end(2, "complete", "done", "all 20 steps")
    second.notice(trial.folder)
    assert second.close("FINISHED")

    run = bench.runs(new_study)[1][1]
    assert run.info.run_id == run_id
    assert run.info.status == "FINISHED"
    assert run.data.params["beta"] == "0.1"  # params can't change in MLflow: the new value is a tag
    assert run.data.tags["kltune.changed.beta"] == "0.3"
    history = bench.client(new_study).get_metric_history(run_id, "ctrl/beta")
    assert [metric.step for metric in history] == list(range(1, 21))
    assert bench.runs(new_study)[0].info.status == "FINISHED"


def test_a_lost_database_is_filled_again_from_the_record(bench: Any, new_study: Path) -> None:
    trial = bench.Trial(new_study, 1)
    trial.config()
    trial.steps(1, 1, 20)
    for _ in range(2):
        mirror = bench.mirror(new_study)
        mirror.start()
        assert mirror.close("FINISHED")
        run = bench.runs(new_study)[1][1]
        history = bench.client(new_study).get_metric_history(run.info.run_id, "ctrl/beta")
        assert [metric.step for metric in history] == list(range(1, 21))
        shutil.copy(bench.empty_database, new_study / "mlflow.db")


def test_a_second_look_at_a_study_sends_nothing_twice(bench: Any, new_study: Path) -> None:
    trial = bench.Trial(new_study, 1)
    trial.config()
    trial.steps(1, 1, 10)
    for _ in range(2):
        mirror = bench.mirror(new_study)
        mirror.start()
        assert mirror.close("FINISHED")
    run_id = bench.runs(new_study)[1][1].info.run_id
    (trial.folder / "mlflow.json").write_text(  # as if the process had died before it could note it
        json.dumps({**read_json(trial.folder / "mlflow.json"), "offsets": {}, "last": {}})
    )
    mirror = bench.mirror(new_study)
    mirror.start()
    assert mirror.close("FINISHED")
    history = bench.client(new_study).get_metric_history(run_id, "ctrl/beta")
    assert [metric.step for metric in history] == list(range(1, 11))


def test_a_broken_trial_folder_does_not_hold_up_the_others(
    bench: Any, new_study: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = new_study / "trials" / "00001"
    broken.mkdir(parents=True)
    (broken / "config.json").write_text("{")
    mirror = bench.mirror(new_study)
    mirror.start()
    bench.Trial(new_study, 2).config()
    mirror.notice(new_study / "trials" / "00002")
    assert mirror.close("FINISHED")
    assert bench.runs(new_study)[1].keys() == {2}
    assert "00001 is not mirrored" in caplog.text


def test_warnings_are_a_tag_of_the_trials_run_until_they_are_overtaken(
    bench: Any, new_study: Path
) -> None:
    trial = bench.Trial(new_study, 1)
    trial.config()
    trial.steps(1, 1, 10)
    trial.event(1, "warning", 10, guard="truncation", detail="60 % cut", first_step=6)
    for said in ("truncation at step 10: 60 % cut", ""):
        mirror = bench.mirror(new_study)
        mirror.start()
        assert mirror.close("KILLED")
        assert bench.runs(new_study)[1][1].data.tags["kltune.warnings"] == said
        trial.config(attempt=2, start=5)  # from before the warning
