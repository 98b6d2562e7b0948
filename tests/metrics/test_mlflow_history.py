from __future__ import annotations

import hashlib
import math
import socket
import sqlite3
from pathlib import Path

import pytest

from kltune.errors import EnvironmentMissingError, StudyError
from kltune.metrics.mlflow import Store
from kltune.metrics.mlflow_history import is_mlflow_database, read_histories
from kltune.metrics.payload import Point
from kltune.metrics.tracker import Tracker

# MLflow's own use of SQLAlchemy, not ours.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning")


@pytest.fixture(scope="module")
def tracker(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, str]]:
    folder = tmp_path_factory.mktemp("tracker")
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    store = Store.open(Tracker(uri, folder.as_uri(), is_own=False))
    ids: dict[str, str] = {}
    for start, (experiment, name) in enumerate([("x", "first"), ("x", "second"), ("y", "third")]):
        ids[name] = store.create_run(store.experiment(experiment), name, {}, start + 1)
        store.log_params(ids[name], {"beta": "0.1"})
        store.log_points(ids[name], [Point("kl", 0.1 * s, 1000 * s, s) for s in (1, 2)])
    store.create_run(store.experiment("y"), "empty", {}, 9)
    store.log_points(ids["third"], [Point("kl", math.nan, 5000, 3), Point("kl", 0.9, 9000, 1)])
    return uri, ids


def test_a_runs_points_come_in_the_order_in_which_they_were_logged(
    tracker: tuple[str, dict[str, str]],
) -> None:
    uri, ids = tracker
    (run,) = read_histories(uri, ids["third"])
    assert (run.name, run.experiment, run.params) == ("third", "y", {"beta": "0.1"})
    assert [step for step, _, _ in run.points] == [1, 2, 3, 1]
    assert math.isnan(run.points[2][2])
    assert run.points[3] == (1, "kl", 0.9)


def test_runs_are_chosen_by_name_or_experiment(tracker: tuple[str, dict[str, str]]) -> None:
    uri, _ = tracker
    assert [run.name for run in read_histories(uri, "second")] == ["second"]
    assert [run.name for run in read_histories(uri, "x")] == ["first", "second"]
    assert [run.name for run in read_histories(uri, None)] == ["first", "second", "third"]


def test_a_run_that_is_not_there_is_refused(tracker: tuple[str, dict[str, str]]) -> None:
    uri, _ = tracker
    with pytest.raises(StudyError, match=r"no run or experiment 'nope'; the experiments are:"):
        read_histories(uri, "nope")
    with pytest.raises(StudyError, match="not found"):
        read_histories(uri, "0" * 32)


def test_reading_leaves_the_database_as_it_is(tracker: tuple[str, dict[str, str]]) -> None:
    uri, _ = tracker
    path = Path(uri.removeprefix("sqlite:///"))
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    read_histories(uri, None)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before


def test_another_database_is_refused_and_gets_no_tables(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE trials (number)")
    database.close()
    before = path.read_bytes()
    assert not is_mlflow_database(path)
    with pytest.raises(StudyError, match="not an MLflow database"):
        read_histories(f"sqlite:///{path}", None)
    assert path.read_bytes() == before
    with pytest.raises(StudyError, match="no such file"):
        read_histories(f"sqlite:///{tmp_path / 'absent.db'}", None)
    assert not (tmp_path / "absent.db").exists()


def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    with pytest.raises(EnvironmentMissingError, match="did not answer") as caught:
        read_histories("http://u:S3CRET@127.0.0.1:9", None)
    assert "S3CRET" not in str(caught.value)


def test_a_database_server_that_is_not_there_is_one_sentence_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(EnvironmentMissingError, match="no database server answers") as caught:
        read_histories(f"postgresql://u:s3cret@127.0.0.1:{port}/x", None)
    assert "s3cret" not in str(caught.value)
