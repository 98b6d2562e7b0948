from __future__ import annotations

from pathlib import Path

import pytest

from kltune.errors import EnvironmentMissingError
from kltune.study.address import Address
from kltune.study.storage import open_study
from kltune.study.whereabouts import folder_of, note_folder
from tests.fake_bank import small_spec


def test_a_study_whose_database_is_in_its_folder_needs_no_note(tmp_path: Path) -> None:
    opened = open_study(tmp_path, small_spec())
    note_folder(opened)
    assert not any("folder" in key for key in opened.optuna_study.user_attrs)
    opened.close()


def test_a_server_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(EnvironmentMissingError, match=r"127\.0\.0\.1"):
        folder_of(Address("postgresql://u@127.0.0.1:1/x", "s"))
