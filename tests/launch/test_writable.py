from __future__ import annotations

from pathlib import Path

import pytest

from kltune.launch.writable import takes_files


def test_a_folder_that_is_yet_to_be_made_counts_as_the_nearest_that_exists(tmp_path: Path) -> None:
    assert takes_files(tmp_path)
    assert takes_files(tmp_path / "a" / "b")
    assert not (tmp_path / "a").exists()


def test_a_file_in_the_way_takes_none(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    assert not takes_files(tmp_path / "a")
    assert not takes_files(tmp_path / "a" / "b")


def test_a_path_from_the_current_folder_is_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert takes_files(Path("new") / "one")
