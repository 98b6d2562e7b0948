from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from kltune.errors import RunError
from kltune.launch.put import put, refused


def test_a_file_is_written_and_said_to_be_replaced_where_there_was_one(tmp_path: Path) -> None:
    out = tmp_path / "there"
    assert refused(out) == []
    assert put(out, "one") == "wrote"
    assert refused(out) == []
    assert put(out, "two") == "replaced"
    assert out.read_text(encoding="utf-8") == "two"
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_a_pipe_is_written_into_and_stays_one(tmp_path: Path) -> None:
    out, read = tmp_path / "pipe", list[str]()
    os.mkfifo(out)
    assert refused(out) == []
    reader = threading.Thread(target=lambda: read.append(out.read_text(encoding="utf-8")))
    reader.start()
    assert put(out, "text") == "wrote"
    reader.join(timeout=10)
    assert read == ["text"]
    assert stat.S_ISFIFO(out.stat().st_mode)


def test_a_device_is_written_to() -> None:
    null = Path(os.devnull)
    assert refused(null) == []
    assert put(null, "text") == "wrote"
    assert null.is_char_device()


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    link, file = tmp_path / "link", tmp_path / "file"
    file.write_text("old", encoding="utf-8")
    link.symlink_to(file)
    assert put(link, "new") == "replaced"
    assert link.is_symlink()
    assert file.read_text(encoding="utf-8") == "new"


def test_a_folder_and_an_absent_folder_are_refused(tmp_path: Path) -> None:
    (text,) = refused(tmp_path)
    assert "give the path of a file" in text
    (text,) = refused(tmp_path / "absent" / "file")
    assert f"there is no folder {tmp_path / 'absent'}" in text
    assert not (tmp_path / "absent").exists()


def test_a_disk_that_fails_is_an_error_of_the_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="can't be written"):
        put(tmp_path / "absent" / "file", "text")
