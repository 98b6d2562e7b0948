"""Field case D9: a checkpoint that does not fit leaves the one before, and nothing half-written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import tiny

from kltune.errors import DiskError
from kltune.trainer.bank import Bank
from tests.disk_case import fill, largest_file, read_only, small_disk


def trained(steps: int) -> Bank:
    bank = tiny.bank(1)
    bank.admit(0, 7, tiny.trial(), None)
    for _ in range(steps):
        bank.train_step()
    return bank


def test_a_full_disk_leaves_the_checkpoint_before_and_takes_the_next_when_there_is_room(
    tmp_path: Path,
) -> None:
    bank = trained(1)
    with small_disk(tmp_path / "disk", "256k") as disk:
        last = disk / "checkpoints" / "last"
        bank.save_checkpoint(0, last)
        files = {path.name: path.read_bytes() for path in last.iterdir()}
        bank.train_step()
        fill(disk / "ballast")
        with pytest.raises(DiskError, match=r"No space left on device; .* are free there\): make"):
            bank.save_checkpoint(0, last)
        assert {path.name: path.read_bytes() for path in last.iterdir()} == files
        assert [path.name for path in last.parent.iterdir()] == ["last"]
        assert tiny.bank(1).admit(0, 7, tiny.trial(), last) == 1
        (disk / "ballast").unlink()
        bank.save_checkpoint(0, last)
        assert tiny.bank(1).admit(0, 7, tiny.trial(), last) == 2


def test_a_limit_of_file_sizes_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    bank, last = trained(1), tmp_path / "last"
    bank.save_checkpoint(0, last)
    bank.train_step()
    with largest_file(10_000), pytest.raises(DiskError, match="File too large"):
        bank.save_checkpoint(0, last)
    assert [path.name for path in tmp_path.iterdir()] == ["last"]
    assert tiny.bank(1).admit(0, 7, tiny.trial(), last) == 1


def test_a_failed_checkpoint_keeps_no_memory(tmp_path: Path) -> None:  # field case D1
    bank = trained(1)
    before = bank.parts.stack.flat_KP.clone()
    errors = []
    with largest_file(10_000):
        for _ in range(20):
            with pytest.raises(DiskError) as caught:
                bank.save_checkpoint(0, tmp_path / "last")
            errors.append(caught.value)
    assert bank.parts.stack.flat_KP.equal(before)
    assert list(tmp_path.iterdir()) == []
    bank.train_step()  # goes on
    bank.save_checkpoint(0, tmp_path / "last")
    assert tiny.bank(1).admit(0, 7, tiny.trial(), tmp_path / "last") == 2


def test_a_read_only_folder_is_one_sentence(tmp_path: Path) -> None:
    bank = trained(1)
    with read_only(tmp_path), pytest.raises(DiskError, match="Read-only file system"):
        bank.save_adapter(0, tmp_path / "best")


def test_a_file_in_the_place_of_a_checkpoint_makes_way(tmp_path: Path) -> None:
    bank, last = trained(1), tmp_path / "last"
    for name in ("last", "last.old", "last.new"):
        (tmp_path / name).write_text("x")
    bank.save_checkpoint(0, last)
    assert [path.name for path in tmp_path.iterdir()] == ["last"]
    assert tiny.bank(1).admit(0, 7, tiny.trial(), last) == 1


def test_files_are_on_the_disk_before_they_get_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank, calls = trained(1), []
    sync, rename = os.fsync, Path.rename

    def synced(descriptor: int) -> None:
        calls.append(f"sync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")
        sync(descriptor)

    def renamed(self: Path, target: Path) -> Path:
        calls.append(f"rename {self.name}")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "rename", renamed)
    bank.save_checkpoint(0, tmp_path / "last")
    assert calls == ["sync slot.safetensors", "sync slot.json", "rename last.new"]


def test_five_saves_leave_one_folder(tmp_path: Path) -> None:  # field case D9
    bank = trained(1)
    for _ in range(5):
        bank.save_checkpoint(0, tmp_path / "last")
        bank.save_adapter(0, tmp_path / "best")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best", "last"]
