"""What the operating system refuses becomes one sentence, by causing it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kltune.errors import DiskError, ExitCode
from kltune.trial.disk import (
    RESERVE,
    RESERVE_BYTES,
    free_bytes,
    os_error_of,
    remove,
    reserve,
    size_words,
    sync_file,
    writing,
)


def test_a_refusal_is_one_sentence_with_path_cause_and_free_space(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.mkdir()
    with pytest.raises(DiskError) as caught, writing(path):
        path.write_text("x")
    text = str(caught.value)
    assert text.startswith(f"{path}: can't be written (Is a directory; ")
    assert "are free there): see to it that it can be written, then the same command" in text
    assert caught.value.path == str(path)
    assert caught.value.exit_code is ExitCode.RUN_ERROR


def test_a_full_disk_asks_for_room(tmp_path: Path) -> None:
    words = r"No space left on device; .* are free there\): make room"
    with pytest.raises(DiskError, match=words), writing(tmp_path / "x"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_other_errors_pass(tmp_path: Path) -> None:
    with pytest.raises(KeyError), writing(tmp_path):
        raise KeyError("x")


def test_an_error_in_a_librarys_words_is_recognised(tmp_path: Path) -> None:
    found = os_error_of("I/O error: No space left on device (os error 28)", tmp_path)
    assert found is not None
    assert (found.errno, found.filename) == (errno.ENOSPC, str(tmp_path))
    assert os_error_of("header too large", tmp_path) is None


def test_free_space_is_that_of_the_nearest_folder_that_exists(tmp_path: Path) -> None:
    free = free_bytes(tmp_path / "a" / "b")
    assert free is not None
    assert free > 0


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (525_544, "526 kB"),
        (29_300_000, "29.3 MB"),
        (1.2e9, "1.2 GB"),
        (4e12, "4 TB"),
    ],
)
def test_sizes_are_read_as_disks_are_sold(size: float, words: str) -> None:
    assert size_words(size) == words


def test_syncing_a_file_that_is_absent_is_nothing(tmp_path: Path) -> None:
    sync_file(tmp_path / "none")
    (tmp_path / "one").write_text("x")
    sync_file(tmp_path / "one")


def test_files_folders_and_links_are_removed_but_not_what_a_link_points_at(tmp_path: Path) -> None:
    kept, folder, link = tmp_path / "kept", tmp_path / "folder", tmp_path / "link"
    kept.mkdir()
    (kept / "x").write_text("x")
    (folder / "deep").mkdir(parents=True)
    link.symlink_to(kept)
    for path in (folder, link, tmp_path / "absent"):
        remove(path)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (kept / "x").exists()


def test_the_reserve_takes_room_once_and_gives_it_back(tmp_path: Path) -> None:
    with reserve(tmp_path), reserve(tmp_path):
        assert (tmp_path / RESERVE).stat().st_size == RESERVE_BYTES
    assert list(tmp_path.iterdir()) == []


def test_no_reserve_where_nothing_can_be_written(tmp_path: Path) -> None:
    with reserve(tmp_path / "absent"):
        assert not (tmp_path / "absent").exists()
