"""A study's own file: one journal for all that work in it, and refused without a write where it can't be used."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import optuna
import pytest
from fake_bank import small_spec

from kltune.errors import StudyError
from kltune.study.address import Address
from kltune.study.database import check_database, only_name, open_file, other_schema, set_journal
from kltune.study.storage import open_study


def journal(path: Path) -> str:
    with closing(sqlite3.connect(path / "study.db")) as database:
        return database.execute("PRAGMA journal_mode").fetchone()[0]


def test_a_member_that_ends_leaves_the_journal_to_those_who_still_work(tmp_path: Path) -> None:
    first, second, third = (open_study(tmp_path, small_spec()) for _ in range(3))
    first.close()
    assert journal(tmp_path) == "wal"
    second.optuna_study.enqueue_trial({})
    third.close()
    assert journal(tmp_path) == "wal"
    second.close()
    assert journal(tmp_path) == "delete"


def test_one_that_has_opened_and_not_yet_asked_counts_as_at_work(tmp_path: Path) -> None:
    open_study(tmp_path, small_spec()).close()
    idle, other = open_study(tmp_path, small_spec()), open_study(tmp_path, small_spec())
    other.close()
    assert journal(tmp_path) == "wal"
    idle.close()
    assert journal(tmp_path) == "delete"


def test_a_journal_in_use_is_left_as_it_is(tmp_path: Path) -> None:
    open_study(tmp_path, small_spec()).close()
    with closing(sqlite3.connect(tmp_path / "study.db", isolation_level=None)) as user:
        user.execute("PRAGMA journal_mode = WAL")
        user.execute("SELECT COUNT(*) FROM trials")
        set_journal(tmp_path / "study.db", "DELETE")
        assert user.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_file_with_two_studies_is_none_of_kltune_s(tmp_path: Path) -> None:
    storage = open_file(tmp_path / "study.db", Address(None, ""))
    for name in ("one", "two"):
        optuna.create_study(storage=storage, study_name=name)
    with pytest.raises(StudyError, match=r"found 2 \(one, two\)"):
        only_name(storage, tmp_path / "study.db")
    storage.engine.dispose()


def test_a_file_that_is_no_database_is_refused_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    path.write_bytes(b"half a record\n\n")
    with pytest.raises(StudyError, match="not readable"):
        check_database(path)
    assert path.read_bytes() == b"half a record\n\n"


def test_another_optuna_is_named_with_both_revisions() -> None:
    said = other_schema("study.db", "sqlite:///study.db", None, "a copy of the file")
    assert "an unknown revision" in said
    assert optuna.__version__ in said
    assert "optuna storage upgrade --storage 'sqlite:///study.db'" in said
