from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kltune.metrics.outage import TrackerLoss, TrackerOutage, TrackerRefusal
from kltune.metrics.own_database import is_damage, point_here, prepare_own, ready_file
from kltune.metrics.patience import Patience


def _make(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE experiments (experiment_id, artifact_location)")
        database.execute("CREATE TABLE alembic_version (version_num)")
        database.execute("INSERT INTO alembic_version VALUES ('new')")
        database.commit()


def test_tables_are_made_all_or_none(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"

    def half(scratch: Path) -> None:
        _make(scratch)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ready_file(path, "new", half)
    assert not path.exists()
    ready_file(path, "new", _make)
    before = path.read_bytes()
    ready_file(path, "new", half)  # they are there
    assert path.read_bytes() == before


def test_another_schema_is_refused_with_advice_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    _make(path)
    before = path.read_bytes()
    with pytest.raises(TrackerRefusal, match=r"schema new.*needs newer.*mlflow db upgrade sqlite:"):
        ready_file(path, "newer", _make)
    assert path.read_bytes() == before


def test_a_database_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE trials (number)")
        database.commit()
    before = path.read_bytes()
    with pytest.raises(TrackerRefusal, match="a database, but not one of MLflow"):
        ready_file(path, "new", _make)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_makes_way(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"no database at all" * 100)
    (tmp_path / "mlflow.db-journal").write_bytes(b"of the old one")
    aside = prepare_own(tmp_path)
    assert aside is not None
    assert aside.name.startswith("mlflow.db.broken-")
    assert aside.read_bytes().startswith(b"no database")
    assert not (tmp_path / "mlflow.db-journal").exists()
    assert prepare_own(tmp_path) is None


def test_what_a_killed_process_left_half_written_is_undone(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    _make(path)
    code = (
        "import os, sqlite3, sys\n"
        "database = sqlite3.connect(sys.argv[1])\n"
        "database.execute('PRAGMA cache_size = 1')\n"
        "for number in range(2000):\n"
        "    database.execute('INSERT INTO experiments VALUES (?, ?)', (number, 'x' * 500))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert (tmp_path / "mlflow.db-journal").exists()
    assert prepare_own(tmp_path) is None
    ready_file(path, "new", _make)
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM experiments").fetchone() == (0,)


def test_a_damaged_page_is_found_when_there_is_reason_to_look(bench: Any, tmp_path: Path) -> None:
    path = bench.study(tmp_path / "kitchen") / "mlflow.db"
    with path.open("r+b") as file:
        file.seek(3 * 4096)
        file.write(b"\xff" * 40 * 4096)
    assert prepare_own(path.parent, is_doubted=True) is not None
    sound = bench.study(tmp_path / "sound")
    assert prepare_own(sound, is_doubted=True) is None


def test_a_locked_database_is_no_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mlflow.db"
    _make(path)
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, **{**k, "timeout": 0.1}))
    with closing(connect(path, isolation_level=None)) as lock:
        lock.execute("BEGIN EXCLUSIVE")
        for look in (prepare_own, point_here):
            with pytest.raises(TrackerOutage, match="locked"):
                look(tmp_path)
    assert prepare_own(tmp_path) is None
    assert [found.name for found in tmp_path.iterdir()] == ["mlflow.db"]


def test_a_damaged_file_can_not_be_pointed_anywhere(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(TrackerLoss):
        point_here(tmp_path)


def test_only_the_file_itself_can_be_damaged() -> None:
    assert is_damage(sqlite3.DatabaseError("malformed"))
    for other in (sqlite3.OperationalError("locked"), sqlite3.IntegrityError("twice"), None):
        assert not is_damage(other)
    assert not is_damage(OSError("disk"))


def test_waiting_for_another_process_counts_as_getting_on(tmp_path: Path) -> None:
    from kltune.metrics.own_database import one_process

    patience = Patience(is_bounded=False)
    before = time.monotonic()
    with one_process(tmp_path / "new" / "mlflow.db", patience):
        pass
    assert patience.moved_at() >= before
    shutil.rmtree(tmp_path / "new")
