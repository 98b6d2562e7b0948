"""A study is read where it is kept, and nothing is made to find out."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_bank import small_spec

from kltune.errors import EnvironmentMissingError, StudyError
from kltune.study.address import Address, note_address
from kltune.study.reading import folder_of, has_study, load_study, place_on_server, reading
from kltune.study.storage import open_study

NOBODY = Address("postgresql://ann@127.0.0.1:9/kl", "small")


def test_a_study_in_its_folder_is_read_there(tmp_path: Path) -> None:
    opened = open_study(tmp_path, small_spec())
    opened.optuna_study.enqueue_trial({})
    assert has_study(opened.storage, "small")
    assert not has_study(opened.storage, "large")
    with reading(tmp_path) as study:
        assert len(study.get_trials()) == 1
    opened.close()


def test_a_folder_that_names_a_server_is_not_read_from_a_file_beside(tmp_path: Path) -> None:
    open_study(tmp_path, small_spec()).close()
    note_address(tmp_path, NOBODY, "abc")
    for look in (load_study, place_on_server):
        with pytest.raises(EnvironmentMissingError, match=r"127\.0\.0\.1"):
            look(tmp_path)
    with pytest.raises(EnvironmentMissingError):
        folder_of(NOBODY)


def test_an_empty_folder_holds_no_study(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="no study here"):
        load_study(tmp_path)
    assert list(tmp_path.iterdir()) == []
