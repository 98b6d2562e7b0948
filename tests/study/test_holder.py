from __future__ import annotations

import os
from pathlib import Path

import pytest

from kltune.study.holder import find_holder, is_at_work, this_machine
from kltune.study.lock import lock_study
from tests.standing_case import held_by_another_process


def test_a_process_that_holds_the_study_is_seen_and_its_end_too(tmp_path: Path) -> None:
    with held_by_another_process(tmp_path) as pid:
        found = find_holder(tmp_path)
        assert (found.state, found.pid) == ("held", pid)
        assert found.since == pytest.approx((tmp_path / ".lock").stat().st_mtime)
    assert find_holder(tmp_path).state == "free"


def test_looking_never_takes_the_lock_nor_writes(tmp_path: Path) -> None:
    with lock_study(tmp_path):
        pass
    before = (tmp_path / ".lock").stat()
    tmp_path.chmod(0o555)
    with lock_study(tmp_path):
        assert find_holder(tmp_path).pid == os.getpid()
    find_holder(tmp_path)
    tmp_path.chmod(0o755)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    assert (tmp_path / ".lock").stat().st_ino == before.st_ino


def test_a_study_that_was_never_held_is_free(tmp_path: Path) -> None:
    assert find_holder(tmp_path).state == "free"


def test_a_process_of_the_same_number_that_has_not_locked_it_is_not_the_holder(
    tmp_path: Path,
) -> None:
    (tmp_path / ".lock").write_text(f"{os.getpid()}\n", encoding="utf-8")
    assert find_holder(tmp_path).state == "free"
    with (tmp_path / ".lock").open(encoding="utf-8"):  # open, yet not locked
        assert find_holder(tmp_path).state == "free"
    with lock_study(tmp_path / "other"):  # locked, yet another study
        assert find_holder(tmp_path).state == "free"


@pytest.mark.parametrize("text", ["", "what", "-1", "99999999999999"])
def test_a_lock_that_says_nothing_sound_is_free(tmp_path: Path, text: str) -> None:
    (tmp_path / ".lock").write_text(text, encoding="utf-8")
    assert find_holder(tmp_path).state == "free"


def test_where_a_process_can_not_be_looked_into_it_is_left_open(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text(f"{os.getpid()}\n", encoding="utf-8")
    # A system without /proc: all that is known is that the process lives.
    assert find_holder(tmp_path, proc=tmp_path / "absent").state == "unknown"


def test_the_holder_s_command_is_told_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, proc = tmp_path / "study", tmp_path / "proc"
    study.mkdir()
    (study / ".lock").write_text("7\n", encoding="utf-8")
    for name in ("fd", "fdinfo"):
        (proc / "7" / name).mkdir(parents=True)
    (proc / "7" / "fd" / "3").symlink_to(study / ".lock")
    info = "pos:\t0\nlock:\t1: FLOCK  ADVISORY  WRITE 7 08:01:9 0 EOF\n"
    (proc / "7" / "fdinfo" / "3").write_text(info, encoding="utf-8")
    (proc / "7" / "cmdline").write_bytes(b"/x/python\0/x/bin/kltune\0sweep\0a.yaml\0")
    found = find_holder(study, proc)
    assert (found.state, found.command) == ("held", "kltune sweep")
    # Another program may have any words after that one.
    monkeypatch.setenv("PGPASSWORD", "geheimnis")
    (proc / "7" / "cmdline").write_bytes(b"/x/backup\0/x/kltune\0geheimnis\0")
    assert find_holder(study, proc).command == "kltune ***"


def test_only_another_process_is_at_work(tmp_path: Path) -> None:
    assert is_at_work(tmp_path) is False
    with lock_study(tmp_path):  # a sweep that writes its own report
        assert is_at_work(tmp_path) is False
    with held_by_another_process(tmp_path):
        assert is_at_work(tmp_path) is True


def test_a_process_of_this_machine_that_is_gone_is_known_to_be(tmp_path: Path) -> None:
    with held_by_another_process(tmp_path) as pid:
        assert not find_holder(tmp_path).is_gone
    found = find_holder(tmp_path)
    assert (found.state, found.pid, found.is_gone) == ("free", pid, True)
    # Its number means nothing where another machine wrote it, or a kltune that did not say which.
    for text in (f"{pid}\n", f"{pid} another-machine\n"):
        (tmp_path / ".lock").write_text(text, encoding="utf-8")
        assert not find_holder(tmp_path).is_gone


def test_a_process_that_took_the_number_of_a_gone_one_does_not_hide_that_it_is_gone(
    tmp_path: Path,
) -> None:
    text = f"{os.getpid()} {this_machine()}\n"
    (tmp_path / ".lock").write_text(text, encoding="utf-8")
    assert find_holder(tmp_path).is_gone
