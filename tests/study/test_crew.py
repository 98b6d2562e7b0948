from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest

from kltune.errors import StudyError
from kltune.study.crew import FOLDER, clear_dead, is_member_alive, join, members, others
from kltune.study.holder import find_holder
from kltune.study.machine import this_machine
from tests.members_case import member_process


def test_a_member_is_seen_while_it_works_and_leaves_nothing(tmp_path: Path) -> None:
    with join(tmp_path, "sweep") as own:
        own.place(3, "cuda")
        (found,) = members(tmp_path)
        assert (found.role, found.slots, found.device) == ("sweep", 3, "cuda")
        assert (found.pid, found.is_alive, found.is_here) == (os.getpid(), True, True)
        assert others(tmp_path, found.id) == []
    assert list(tmp_path.iterdir()) == []
    assert members(tmp_path) == []


def test_members_of_other_processes_live_until_they_are_killed(tmp_path: Path) -> None:
    with member_process(tmp_path, "sweep") as lead, member_process(tmp_path) as worker:
        found = members(tmp_path)
        assert [(m.role, m.pid, m.is_alive) for m in found] == [
            ("sweep", lead.pid, True),
            ("worker", worker.pid, True),
        ]
        worker.kill()
        worker.wait()
        killed = found[1]
        assert [m.is_alive for m in members(tmp_path)] == [True, False]
        assert is_member_alive(tmp_path, killed.id, killed.machine) is False
        assert [m.id for m in others(tmp_path)] == [found[0].id]
        with join(tmp_path, "worker"):  # one that comes beside the living clears nobody away
            assert [m.is_alive for m in members(tmp_path)] == [True, False, True]
        holder = find_holder(tmp_path)
        assert [m.id for m in holder.dead] == [killed.id]
        assert holder.state == "held"
        assert holder.command == "kltune sweep"
        assert holder.pid == lead.pid
    with join(tmp_path, "worker") as own:  # the first that comes where nobody lives does
        assert [m.id for m in members(tmp_path)] == [own.member.id]


def test_the_dead_are_named_where_nobody_lives(tmp_path: Path) -> None:
    with member_process(tmp_path) as worker:
        worker.kill()
        worker.wait()
    holder = find_holder(tmp_path)
    assert (holder.state, holder.pid, holder.is_gone) == ("free", worker.pid, True)


def test_a_process_that_took_the_number_of_a_dead_member_is_not_it(tmp_path: Path) -> None:
    with join(tmp_path, "worker") as own:
        path = tmp_path / FOLDER / f"{own.member.id}.json"
        text = path.read_text(encoding="utf-8")
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")  # this process lives, and holds no lock on it
    assert [m.is_alive for m in members(tmp_path)] == [False]


def test_of_another_machine_only_a_held_lock_is_proof(tmp_path: Path) -> None:
    with join(tmp_path, "worker") as own:
        path = tmp_path / FOLDER / f"{own.member.id}.json"
        facts = {**json.loads(path.read_text(encoding="utf-8")), "machine": "another", "id": "far"}
        far = path.with_name("far.json")
        far.write_text(json.dumps(facts), encoding="utf-8")
        assert is_member_alive(tmp_path, "far", "another") is None
        with far.open("r+", encoding="utf-8") as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX)
            assert is_member_alive(tmp_path, "far", "another") is True
        assert is_member_alive(tmp_path, "gone", "another") is None
        assert is_member_alive(tmp_path, "gone", this_machine()) is False
    assert find_holder(tmp_path).state == "unknown"
    clear_dead(tmp_path)
    assert far.exists()


def test_looking_at_a_member_never_keeps_it_from_joining_or_writes(tmp_path: Path) -> None:
    with join(tmp_path, "worker"):
        for _ in range(50):
            members(tmp_path)
        with join(tmp_path, "worker"):
            assert len(members(tmp_path)) == 2


def test_half_written_files_and_other_things_are_no_members(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "a.json").touch()
    (tmp_path / FOLDER / "b.json").write_text('{"id": "b"}', encoding="utf-8")
    (tmp_path / FOLDER / "notes.txt").write_text("mine", encoding="utf-8")
    assert members(tmp_path) == []


def test_an_error_inside_takes_the_member_s_file_away(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="oops"), join(tmp_path, "worker"):
        raise ValueError("oops")
    assert members(tmp_path) == []


def test_a_study_that_is_not_there_can_not_be_joined(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="no such study folder"), join(tmp_path / "a", "worker"):
        pass
