"""How many workers, slots and threads: rules without a clock."""

from __future__ import annotations

import pytest

from kltune.launch.placement import (
    MAX_WORKERS,
    Machine,
    Placement,
    Promise,
    Wish,
    alone,
    device_slots,
    is_gain,
    processes_that_fit,
    slots_of,
    spread,
    worker_of,
)

TWO_CORES = Machine("cpu", threads=2, device_slots=1)
MANY = 99


def wish(**changes: object) -> Wish:
    asked = {"slots": "auto", "workers": "auto", "trials": 24, "is_full": False}
    return Wish(**{**asked, **changes})


@pytest.mark.parametrize(
    ("asked", "one", "several"),
    [
        ({}, (1, 1, 2), (2, 2, 1)),
        ({"is_full": True}, (1, 1, 2), (2, 2, 1)),
        ({"trials": 1}, (1, 1, 2), None),  # one trial can't be shared
        ({"slots": 1}, (1, 1, 2), None),  # nor one slot
        ({"slots": 4}, (1, 4, 2), (2, 4, 1)),
        ({"slots": 3}, (1, 3, 2), (2, 3, 1)),
        ({"slots": 9, "trials": 2}, (1, 2, 2), (2, 2, 1)),
        ({"workers": 1}, (1, 1, 2), None),  # never a second process
        ({"workers": 1, "slots": 4}, (1, 4, 2), None),
        ({"workers": 3}, (1, 1, 2), (3, 3, 1)),  # asked for by number: given
        ({"workers": 4, "trials": 2}, (1, 1, 2), (2, 2, 1)),
        ({"workers": 2, "slots": 4}, (1, 4, 2), (2, 4, 1)),
        ({"workers": 2, "slots": 2, "is_full": True}, (1, 1, 2), (2, 2, 1)),
    ],
    ids=str,
)
def test_what_is_compared_on_two_cores(
    asked: dict[str, object], one: tuple[int, int, int], several: tuple[int, int, int] | None
) -> None:
    assert alone(wish(**asked), TWO_CORES) == Placement(*one)
    found = spread(wish(**asked), TWO_CORES, fitting=MANY)
    assert found == (None if several is None else Placement(*several))


def test_many_cores_become_a_few_workers_of_several_threads() -> None:
    found = spread(wish(), Machine("cpu", threads=64, device_slots=1), fitting=MANY)
    assert found == Placement(MAX_WORKERS, MAX_WORKERS, 64 // MAX_WORKERS)
    few_trials = spread(wish(trials=3), Machine("cpu", threads=8, device_slots=1), fitting=MANY)
    assert few_trials == Placement(3, 3, 2)


def test_memory_bounds_the_workers_that_nobody_asked_for() -> None:
    eight = Machine("cpu", threads=8, device_slots=1)
    assert spread(wish(), eight, fitting=3) == Placement(3, 3, 2)
    assert spread(wish(), eight, fitting=1) is None
    assert spread(wish(workers=4), eight, fitting=1) == Placement(4, 4, 2)


def test_a_cuda_device_is_one_workers() -> None:
    gpu = Machine("cuda", threads=16, device_slots=8)
    assert alone(wish(), gpu) == Placement(1, 8, 16)
    assert spread(wish(), gpu, fitting=MANY) is None
    assert alone(wish(slots=3), gpu) == Placement(1, 3, 16)


def test_processes_fit_beside_the_one_that_runs() -> None:
    assert processes_that_fit(1e9, 0) == 0
    assert processes_that_fit(1e9, 1.2e9) == 0  # a fifth of what is free stays free
    assert processes_that_fit(1e9, 1.3e9) == 1
    assert processes_that_fit(0, 1e9) > 99


def test_slots_of_a_device_fit_twice_over_beside_a_second_base() -> None:
    assert device_slots(8, free_bytes=100e9, base_bytes=1e9, slot_bytes=1e9) == 8
    assert device_slots(8, free_bytes=9e9, base_bytes=1e9, slot_bytes=1e9) == 4
    assert device_slots(8, free_bytes=1e9, base_bytes=1e9, slot_bytes=1e9) == 1


def test_workers_are_tried_where_they_promise_a_gain_that_pays_for_their_start() -> None:
    def is_tried(few_s: float, workers: int = 2, steps: int = 1000) -> bool:
        return Promise(0.2, few_s, workers, steps).is_worth_a_try()

    assert is_tried(0.3)  # 0.15 s against 0.2 s
    assert not is_tried(0.37)  # 0.185 s: within the noise of the promise
    assert not is_tried(0.4)
    assert not is_tried(0.3, steps=100)  # 5 s saved in all
    assert not is_tried(0.3, workers=1)


def test_workers_are_kept_where_they_are_seen_to_gain() -> None:
    assert is_gain(0.2, 0.18)
    assert not is_gain(0.2, 0.195)
    assert not is_gain(0.2, 0.25)


def test_the_first_trials_go_to_one_worker_each_and_no_slot_is_shared() -> None:
    placement = Placement(3, 8, 1)
    places = [worker_of(slot, placement.workers) for slot in range(placement.slots)]
    assert [worker for worker, _ in places[:3]] == [0, 1, 2]
    assert len(set(places)) == 8
    for worker in range(3):
        locals_ = [local for other, local in places if other == worker]
        assert locals_ == list(range(slots_of(worker, placement)))


@pytest.mark.parametrize(
    ("placement", "words"),
    [
        (Placement(1, 1, 2), "1 worker of 2 threads"),
        (Placement(2, 2, 1), "2 workers of 1 thread"),
        (Placement(2, 4, 1), "2 workers of 1 thread, 4 trials at once"),
    ],
)
def test_a_placement_in_words(placement: Placement, words: str) -> None:
    assert placement.describe() == words
