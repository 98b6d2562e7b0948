"""Whom a cluster's sweep starts, where, and when it stops starting anyone."""

from __future__ import annotations

import pytest

from kltune.errors import ExitCode
from kltune.launch.fleet import MOST_IN_VAIN, MOST_ON_A_NODE, Fleet

TWO = {"a": {"GPU": 2.0, "CPU": 8.0}, "b": {"GPU": 1.0, "CPU": 8.0}}


def _started(fleet: Fleet, nodes: dict[str, dict[str, float]]) -> list[int]:
    return [fleet.start(node) for node in fleet.places(nodes)]


def test_every_gpu_gets_one_worker() -> None:
    fleet = Fleet(most=10, gpus=1.0)
    assert sorted(fleet.places(TWO)) == ["a", "a", "b"]


def test_halves_of_gpus_on_two_nodes_make_no_whole_one() -> None:
    assert Fleet(most=10, gpus=1.0).places({"a": {"GPU": 0.5}, "b": {"GPU": 0.5}}) == []


@pytest.mark.parametrize(("share", "workers"), [(0.5, 6), (0.25, 12), (1 / 3, 9), (2.0, 1)])
def test_a_worker_may_take_a_fraction_or_several(share: float, workers: int) -> None:
    assert len(Fleet(most=100, gpus=share).places(TWO)) == workers


def test_without_gpus_a_node_holds_one_worker() -> None:
    assert sorted(Fleet(most=10, gpus=0.0).places(TWO)) == ["a", "b"]


def test_no_more_workers_than_trials_are_left() -> None:
    fleet = Fleet(most=2, gpus=1.0)
    _started(fleet, TWO)
    assert len(fleet.running) == 2
    assert fleet.places(TWO) == []


def test_a_lost_worker_is_replaced_on_a_node_that_is_left() -> None:
    fleet = Fleet(most=10, gpus=0.0)
    _started(fleet, TWO)
    lost = next(number for number, node in fleet.running.items() if node == "b")
    fleet.ended(lost, None, "the node is gone", trials_ended=1)
    assert fleet.places({"a": TWO["a"]}) == []  # a has one already
    assert fleet.places({"a": TWO["a"], "c": TWO["b"]}) == ["c"]  # a new node has joined


def test_nobody_follows_a_worker_that_found_nothing_left() -> None:
    fleet = Fleet(most=10, gpus=1.0)
    numbers = _started(fleet, TWO)
    fleet.ended(numbers[0], ExitCode.DONE, "", trials_ended=5)
    assert fleet.is_settled
    assert fleet.places(TWO) == []


def test_preempted_workers_are_replaced_for_ever() -> None:
    fleet = Fleet(most=1, gpus=1.0)
    for _ in range(10 * MOST_IN_VAIN):
        (number,) = _started(fleet, TWO)
        fleet.ended(number, ExitCode.TERMINATED, "terminated", trials_ended=0)
    assert fleet.gave_up is None


def test_failures_with_nothing_done_between_them_end_it() -> None:
    fleet = Fleet(most=1, gpus=1.0)
    for _ in range(MOST_IN_VAIN):
        (number,) = _started(fleet, TWO)
        fleet.ended(number, -11, "segmentation fault", trials_ended=0)
    assert fleet.gave_up is not None
    assert "segmentation fault" in fleet.gave_up
    assert fleet.places(TWO) == []


def test_failures_with_trials_done_between_them_do_not() -> None:
    fleet = Fleet(most=1, gpus=1.0)
    for ended in range(1, 10 * MOST_IN_VAIN):
        (number,) = _started(fleet, TWO)
        fleet.ended(number, -9, "killed", trials_ended=ended)
    assert fleet.gave_up is None


def test_a_node_that_fails_again_and_again_is_left_alone_while_there_are_others() -> None:
    fleet = Fleet(most=10, gpus=0.0)
    for _ in range(MOST_ON_A_NODE):
        fleet.ended(fleet.start("a"), 1, "no driver", trials_ended=0)
    assert fleet.places(TWO) == ["b"]
    assert fleet.places({"a": TWO["a"]}) == ["a"]


def test_a_refused_spec_ends_it_at_once() -> None:
    fleet = Fleet(most=10, gpus=1.0)
    numbers = _started(fleet, TWO)
    fleet.ended(numbers[0], ExitCode.USAGE, "error: search.beta: ...", trials_ended=0)
    assert fleet.refusal is ExitCode.USAGE
    assert fleet.places(TWO) == []
