from __future__ import annotations

from kltune.launch.status_words import dead_words, members_json, members_words
from kltune.study.crew import Member, Role


def member(role: Role, number: int = 1) -> Member:
    return Member(f"id{number}", "some/machine", number, 0.0, role, 2, "cpu", is_alive=True)


def test_members_are_counted_by_kind() -> None:
    sweep, one, two = member("sweep"), member("worker", 2), member("worker", 3)
    assert members_words([]) == ""
    assert members_words([sweep]) == "sweep"
    assert members_words([one]) == "1 worker"
    assert members_words([one, sweep, two]) == "sweep + 2 workers"


def test_the_dead_are_named() -> None:
    assert dead_words([member("worker", 7)]) == "worker id7 (process 7)"


def test_members_as_data_name_no_machine() -> None:
    (found,) = members_json([member("worker", 7)])
    assert found["process"] == 7
    assert "some/machine" not in str(found)
