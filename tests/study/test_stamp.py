"""Whose study it is, by what was written into it."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest
from fake_bank import small_spec

from kltune.errors import StudyError
from kltune.study.address import Address, note_address
from kltune.study.stamp import (
    ATTR_FOLDER,
    check_home,
    check_same_spec,
    digest,
    is_blank,
    refuse_without_its_trials,
    stamp,
)

SERVER = Address("postgresql://ann@db/kl", "small")


def test_a_study_is_blank_until_it_is_stamped() -> None:
    study = optuna.create_study()
    assert is_blank(study)
    stamp(study, small_spec())
    assert not is_blank(study)
    assert ATTR_FOLDER not in study.user_attrs
    check_same_spec(Path("x"), study.user_attrs, small_spec())
    with pytest.raises(StudyError, match="1 difference"):
        check_same_spec(Path("x"), study.user_attrs, small_spec(seed=7))


def test_where_a_study_is_kept_is_no_part_of_its_fingerprint() -> None:
    assert digest(small_spec()) == digest(small_spec(storage={"url": SERVER.url}))
    assert digest(small_spec()) != digest(small_spec(seed=7))


def test_a_study_on_a_server_belongs_to_one_folder(tmp_path: Path) -> None:
    study = optuna.create_study()
    stamp(study, small_spec(), tmp_path, "abc")
    assert study.user_attrs[ATTR_FOLDER] == str(tmp_path)
    with pytest.raises(StudyError, match="another folder"):
        check_home(tmp_path, study.user_attrs, SERVER)
    note_address(tmp_path, SERVER, "abc")
    check_home(tmp_path, study.user_attrs, SERVER)
    note_address(tmp_path, SERVER, "abd")
    with pytest.raises(StudyError, match="another folder"):
        check_home(tmp_path, study.user_attrs, SERVER)


def test_a_record_alone_is_no_study(tmp_path: Path) -> None:
    refuse_without_its_trials(tmp_path, SERVER)
    note_address(tmp_path, SERVER, "abc")
    refuse_without_its_trials(tmp_path, SERVER)
    (tmp_path / "trials" / "00000").mkdir(parents=True)
    with pytest.raises(StudyError, match="no longer holds its study"):
        refuse_without_its_trials(tmp_path, SERVER)
