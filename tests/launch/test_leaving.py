"""Who is told that it is the last one in a study."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kltune.launch.leaving import leave
from kltune.study.crew import join, members
from kltune.study.lock import enter_study
from tests.members_case import member_process


@contextmanager
def _part(study: Path) -> Generator[tuple]:
    with enter_study(study, lambda: True, lambda: False) as hold, join(study, "worker") as own:
        assert hold is not None
        yield hold, own


def _distant(study: Path, seen_ago_s: float) -> Path:
    """The file of a member on another machine, whose lock does not reach this one."""
    path = study / "workers" / "far.json"
    facts = {"schema": 1, "id": "far", "machine": "another", "pid": 1, "started": 0.0}
    path.write_text(json.dumps({**facts, "role": "worker", "slots": 1, "device": "cpu"}))
    seen = path.stat().st_mtime - seen_ago_s
    os.utime(path, (seen, seen))
    return path


def test_of_several_that_leave_at_once_exactly_one_is_the_last(tmp_path: Path) -> None:
    for _ in range(20):
        said, start = list[bool](), threading.Barrier(4)

        def one(said: list[bool] = said, start: threading.Barrier = start) -> None:
            with _part(tmp_path) as part:
                start.wait()
                said.append(leave(*part))
                start.wait()

        threads = [threading.Thread(target=one) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(said) == [False, False, False, True]


def test_one_that_has_left_is_no_member_though_its_process_lives(tmp_path: Path) -> None:
    with member_process(tmp_path), _part(tmp_path) as (hold, own):
        assert len(members(tmp_path)) == 2
        assert not leave(hold, own)
        assert [m.id for m in members(tmp_path)] != [own.member.id]
        assert len(members(tmp_path)) == 1


def test_the_last_one_forgets_members_that_were_killed(tmp_path: Path) -> None:
    with _part(tmp_path) as (hold, own), member_process(tmp_path) as other:
        other.kill()
        other.wait()
        assert leave(hold, own)
        assert members(tmp_path) == []


def test_a_member_of_another_machine_counts_while_it_gives_signs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KLTUNE_LEASE", "10")
    for seen_ago_s, is_last in ((5.0, False), (30.0, True)):
        turns = list[str]()

        @contextmanager
        def turn(turns: list[str] = turns) -> Generator[None]:
            turns.append("taken")
            yield

        with _part(tmp_path) as (hold, own):
            far = _distant(tmp_path, seen_ago_s)
            assert leave(hold, own, turn) is is_last
            assert turns == ["taken"]
        far.unlink()


def test_a_database_that_is_gone_keeps_nobody(tmp_path: Path) -> None:
    @contextmanager
    def lost() -> Generator[None]:
        raise OSError("no connection")
        yield

    with _part(tmp_path) as (hold, own):
        _distant(tmp_path, 1000.0)
        assert leave(hold, own, lost)
