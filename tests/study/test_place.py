"""Where a study may be, and where it may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from kltune.errors import StudyError
from kltune.study.place import UNFINISHED, check_folder, holds_study, is_empty, is_foreign


def test_an_absent_or_empty_folder_and_one_with_a_database_pass(tmp_path: Path) -> None:
    check_folder(tmp_path / "absent")
    check_folder(tmp_path)
    (tmp_path / ".lock").touch()
    check_folder(tmp_path)
    (tmp_path / "study.db").touch()
    check_folder(tmp_path)


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(StudyError, match="is a file"):
        check_folder(tmp_path / "x")


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("print(1)\n", encoding="utf-8")
    assert is_foreign(tmp_path)
    with pytest.raises(StudyError, match="no study of kltune"):
        check_folder(tmp_path)


def test_a_study_on_a_server_needs_no_database_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "resolved.json").write_text("{}", encoding="utf-8")
    assert not holds_study(tmp_path)
    (tmp_path / "storage.json").write_text("{}", encoding="utf-8")
    check_folder(tmp_path)
    assert holds_study(tmp_path)


def test_what_members_leave_before_a_study_is_begun_is_no_study(tmp_path: Path) -> None:
    for name in (".lock", ".turn", ".mirror"):
        (tmp_path / name).touch()
    (tmp_path / "workers").mkdir()
    assert is_empty(tmp_path)
    check_folder(tmp_path)


def test_a_study_whose_database_is_gone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "resolved.json").write_text("{}", encoding="utf-8")
    assert not is_foreign(tmp_path)
    with pytest.raises(StudyError, match=r"study\.db is gone"):
        check_folder(tmp_path)


def test_a_study_that_was_being_made_is_as_good_as_none(tmp_path: Path) -> None:
    for name in (UNFINISHED, f"{UNFINISHED}-journal"):
        (tmp_path / name).touch()
    check_folder(tmp_path)
    assert is_empty(tmp_path)
