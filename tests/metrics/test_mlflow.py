from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kltune.metrics.mlflow import Store
from kltune.metrics.outage import TrackerOutage, TrackerRefusal
from kltune.metrics.payload import Point
from kltune.metrics.tracker import Tracker, resolve_tracker

# MLflow's own use of SQLAlchemy, not ours.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning")


@pytest.fixture
def store(bench: Any, tmp_path: Path) -> Store:
    return Store.open(resolve_tracker(bench.study(tmp_path / "kitchen"), None, {}))


def test_the_latest_value_is_that_of_the_highest_step(store: Store) -> None:
    run_id = store.create_run(store.experiment("x"), "r", {}, 0)
    store.log_points(run_id, [Point("eval/gold", 0.5, 1000, 2)])
    store.log_points(run_id, [Point("eval/gold", 0.9, 2000, 1)])
    assert store._client.get_run(run_id).data.metrics["eval/gold"] == 0.5


def test_more_than_a_thousand_points_go_in_several_requests(store: Store) -> None:
    run_id = store.create_run(store.experiment("x"), "r", {}, 0)
    assert store.log_points(run_id, [Point("eval/gold", 0.5, 1000, s) for s in range(1500)]) == []
    assert len(store._client.get_metric_history(run_id, "eval/gold")) == 1500


def test_a_run_is_found_by_its_tag(store: Store) -> None:
    experiment = store.experiment("x")
    run_id = store.create_run(experiment, "r", {"kltune.trial_key": "abc/1"}, 0)
    assert store.find_runs(experiment, "kltune.trial_key", "abc/1") == [run_id]
    assert store.find_runs(experiment, "kltune.trial_key", "abc/2") == []


def test_an_experiment_is_created_once(store: Store) -> None:
    assert store.experiment("x") == store.experiment("x")


def test_a_deleted_experiment_is_a_refusal_that_says_so(store: Store) -> None:
    store._client.delete_experiment(store.experiment("x"))
    with pytest.raises(TrackerRefusal, match="experiment 'x' is deleted"):
        store.experiment("x")


def test_a_run_that_is_gone_has_no_params(store: Store) -> None:
    run_id = store.create_run(store.experiment("x"), "r", {}, 0)
    store.log_params(run_id, {"a": "1"})
    assert store.params_of(run_id) == {"a": "1"}
    assert store.params_of("0" * 32) is None
    store._client.delete_run(run_id)
    assert store.params_of(run_id) is None


def test_a_param_with_another_value_is_a_refusal(store: Store) -> None:
    run_id = store.create_run(store.experiment("x"), "r", {}, 0)
    store.log_params(run_id, {"a": "1"})
    store.log_params(run_id, {"a": "1"})
    with pytest.raises(TrackerRefusal):
        store.log_params(run_id, {"a": "2"})


def test_a_server_that_is_not_there_is_an_outage_without_its_password() -> None:
    with pytest.raises(TrackerOutage) as caught:
        Store.open(Tracker("http://u:S3CRET@127.0.0.1:9", None, is_own=False))
    assert "S3CRET" not in str(caught.value)


def test_an_old_database_is_named_and_left_as_it_is(bench: Any, tmp_path: Path) -> None:
    import sqlite3

    path = bench.study(tmp_path / "kitchen") / "mlflow.db"
    database = sqlite3.connect(path)
    database.execute("UPDATE alembic_version SET version_num = '451aebb31d03'")
    database.commit()
    database.close()
    before = path.read_bytes()
    with pytest.raises((TrackerOutage, TrackerRefusal), match="mlflow db upgrade"):
        Store.open(Tracker(f"sqlite:///{path}", None, is_own=True))
    assert path.read_bytes() == before


@pytest.mark.slow
def test_several_processes_may_start_on_one_fresh_database(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from kltune.metrics.mirror import MlflowMirror\n"
        "from kltune.metrics.tracker import resolve_tracker\n"
        "study = Path(sys.argv[1]); uri = sys.argv[2]; study.mkdir()\n"
        "mirror = MlflowMirror(study, resolve_tracker(study, uri, {}), 'shared', [])\n"
        "mirror.start(); assert mirror.close('FINISHED', timeout_s=100)\n"
    )
    uri = f"sqlite:///{tmp_path / 'shared.db'}"
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path / name), uri]) for name in "abcd"
    ]
    assert [process.wait(120) for process in processes] == [0, 0, 0, 0]
    from mlflow.tracking.client import MlflowClient

    client = MlflowClient(uri)
    assert [e.name for e in client.search_experiments()] == ["shared", "Default"]
    runs = client.search_runs([client.get_experiment_by_name("shared").experiment_id])
    assert [run.info.status for run in runs] == ["FINISHED"] * 4
    assert client.search_runs(["0"]) == []


def test_at_its_end_python_looks_for_no_garbage_among_all_that_mlflow_made() -> None:
    code = (
        "import atexit, gc, importlib\n"
        "from kltune.metrics import mlflow\n"
        "importlib.import_module = lambda name: None\n"
        "mlflow.load(); mlflow.load()\n"
        "assert gc.get_freeze_count() == 0\n"
        "atexit._run_exitfuncs()\n"
        "assert gc.get_freeze_count() > 0\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
