from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy
from fake_bank import small_spec
from postgres_case import Database, postgres
from sqlalchemy.exc import OperationalError

from kltune.errors import EnvironmentMissingError, StudyError
from kltune.launch.ui_stores import mlflow_store, optuna_store
from kltune.study.address import Address, note_address
from kltune.study.storage import open_study, storage_to_read

__all__ = ["postgres"]  # a fixture

ODD = "a b #1 100% {x} ü?"
"""Characters that mean something in an address."""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    folder = tmp_path / ODD
    folder.mkdir()
    return folder


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


def make_optuna(study: Path, mode: str = "DELETE") -> Path:
    path = study / "study.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(f"PRAGMA journal_mode = {mode}")
        database.execute("CREATE TABLE studies (study_id INTEGER)")
        database.execute("INSERT INTO studies VALUES (7)")
    return path


def make_mlflow(study: Path, root: str) -> Path:
    path = study / "mlflow.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "CREATE TABLE experiments (experiment_id INTEGER, name TEXT, artifact_location TEXT)"
        )
        database.execute("INSERT INTO experiments VALUES (3, 'kitchen', ?)", (root,))
    return path


def one(url: str, query: str) -> object:
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
    with engine.connect() as connection:
        return connection.execute(sqlalchemy.text(query)).scalar()


def test_the_address_works_whatever_the_folder_is_called(study: Path, scratch: Path) -> None:
    make_optuna(study)
    store = optuna_store(study, scratch)
    assert store is not None
    assert (store.entry, store.copied_because) == ("7", None)
    assert one(store.url, "SELECT study_id FROM studies") == 7
    # As Optuna does with an address, and as MLflow reads its scheme.
    assert store.url.format() == store.url
    assert store.url.startswith("sqlite:///")
    assert list(scratch.iterdir()) == []


def test_nothing_can_be_written_through_it(study: Path, scratch: Path) -> None:
    make_optuna(study)
    store = optuna_store(study, scratch)
    assert store is not None
    engine = sqlalchemy.create_engine(store.url, poolclass=sqlalchemy.NullPool)
    with (
        engine.connect() as connection,
        pytest.raises(OperationalError, match="readonly"),
    ):
        connection.execute(sqlalchemy.text("DELETE FROM studies"))


def test_a_search_writes_while_it_is_read_and_leaves_one_file_after(
    study: Path, scratch: Path
) -> None:
    path = make_optuna(study, "WAL")
    store = optuna_store(study, scratch)
    assert store is not None
    engine = sqlalchemy.create_engine(store.url, poolclass=sqlalchemy.NullPool)
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as search:
        with engine.connect() as reader:
            reader.execute(sqlalchemy.text("SELECT * FROM studies")).fetchone()
            search.execute("BEGIN IMMEDIATE")
            search.execute("INSERT INTO studies VALUES (8)")
            search.execute("COMMIT")
        assert one(store.url, "SELECT COUNT(*) FROM studies") == 2
        search.execute("PRAGMA journal_mode = DELETE")
    assert [p.name for p in study.iterdir()] == ["study.db"]


def test_a_study_without_databases_has_no_stores(study: Path, scratch: Path) -> None:
    assert optuna_store(study, scratch) is None
    assert mlflow_store(study, scratch, "kitchen") is None


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(
    study: Path, scratch: Path
) -> None:
    (study / "study.db").write_text("no database" * 100)
    (study / "mlflow.db").write_text("no database" * 100)
    with pytest.raises(StudyError, match=r"study\.db"):
        optuna_store(study, scratch)
    with pytest.raises(StudyError, match=r"mlflow\.db"):
        mlflow_store(study, scratch, "kitchen")
    assert (study / "study.db").read_text() == "no database" * 100


def test_a_moved_study_shows_the_artifacts_that_lie_in_it(study: Path, scratch: Path) -> None:
    path = make_mlflow(study, "file:///elsewhere/artifacts")
    before = (path.read_bytes(), sorted(study.iterdir()))
    store = mlflow_store(study, scratch, "kitchen")
    assert store is not None
    assert store.entry == "3"
    assert "was moved" in str(store.copied_because)
    assert store.copy_bytes == path.stat().st_size
    assert (path.read_bytes(), sorted(study.iterdir())) == before  # the study is only read
    here = (study / "artifacts").as_uri()
    assert one(store.url, "SELECT artifact_location FROM experiments") == here


def test_a_study_in_its_place_is_not_written_in(study: Path, scratch: Path) -> None:
    path = make_mlflow(study, (study / "artifacts").as_uri())
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as sweep:
        sweep.execute("BEGIN IMMEDIATE")  # whoever wants to write now has to wait
        store = mlflow_store(study, scratch, "kitchen")
        sweep.execute("ROLLBACK")
    assert store is not None
    assert store.copied_because is None


def test_an_experiment_that_is_not_there_yet_is_an_empty_entry(study: Path, scratch: Path) -> None:
    make_mlflow(study, (study / "artifacts").as_uri())
    store = mlflow_store(study, scratch, "another")
    assert store is not None
    assert store.entry == ""


def test_what_a_crash_left_half_written_is_shown_as_before_it(study: Path, scratch: Path) -> None:
    path = make_optuna(study)
    crash = f"""
import os, sqlite3
database = sqlite3.connect({str(path)!r}, isolation_level=None)
database.execute("PRAGMA cache_size = 1")
database.execute("BEGIN EXCLUSIVE")
database.execute("UPDATE studies SET study_id = 8")
database.executemany("INSERT INTO studies VALUES (?)", [(i,) for i in range(20000)])
os._exit(1)
"""
    subprocess.run([sys.executable, "-c", crash], check=False)
    assert (study / "study.db-journal").stat().st_size > 0
    store = optuna_store(study, scratch)
    assert store is not None
    assert store.entry == "7"
    assert "can't be read in place" in str(store.copied_because)
    assert one(store.url, "SELECT COUNT(*) FROM studies") == 1
    assert (study / "study.db-journal").stat().st_size > 0  # for the next sweep to roll back


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anything")
def test_a_study_in_a_folder_that_cannot_be_written_to_is_shown(study: Path, scratch: Path) -> None:
    make_optuna(study, "WAL")
    make_mlflow(study, "file:///elsewhere/artifacts")
    for path in study.iterdir():
        path.chmod(0o444)
    study.chmod(0o555)
    try:
        of_optuna, of_mlflow = optuna_store(study, scratch), mlflow_store(study, scratch, "kitchen")
    finally:
        study.chmod(0o755)
    assert of_optuna is not None
    assert of_mlflow is not None
    assert (of_optuna.entry, of_mlflow.entry) == ("7", "3")
    here = (study / "artifacts").as_uri()
    assert one(of_mlflow.url, "SELECT artifact_location FROM experiments") == here


def test_a_study_on_a_server_is_read_there_by_an_address_without_its_password(
    tmp_path: Path, postgres: Database
) -> None:
    open_study(tmp_path, small_spec(storage={"url": postgres.url})).close()
    store = optuna_store(tmp_path, tmp_path)
    assert store is not None
    assert (store.url, store.copied_because) == (postgres.url, None)
    assert [str(s._study_id) for s in storage_to_read(store.url).get_all_studies()] == [store.entry]


def test_a_server_that_is_away_is_said_and_not_shown(tmp_path: Path) -> None:
    note_address(tmp_path, Address("postgresql://ann@127.0.0.1:9/kl", "small"), "abc")
    with pytest.raises(EnvironmentMissingError, match="can't be used"):
        optuna_store(tmp_path, tmp_path)
