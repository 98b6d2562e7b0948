"""Several banks as one: slots, faults. Fakes in this process, then real ones in others."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path

import pytest
from spec_files import minimal, write

from kltune.errors import OutOfMemoryFault, SlotsLostFault, TrialFault
from kltune.launch.assemble import build_bank, find_inputs, load_ground, reference_scale
from kltune.launch.placement import Placement
from kltune.launch.threads import torch_threads
from kltune.launch.worker import Worker
from kltune.launch.worker_bank import WorkerBank, start_all
from kltune.launch.worker_process import Job
from kltune.metrics.record import EvalMetrics, StepMetrics
from kltune.spec.load import load_spec
from kltune.trainer.protocol import Ahead
from tests.inline_workers import ONE, TWO, Trio, never, steps_of


def test_slots_are_spread_over_the_workers_and_measure_in_order(trio: Callable[..., Trio]) -> None:
    three = trio()
    three.fill()
    assert [sorted(t.trial_number for t in b._slots.values()) for b in three.banks] == [
        *([10, 13], [11, 14], [12, 15])
    ]
    assert steps_of(three.bank.train_step()) == {slot: (10 + slot, 1) for slot in range(6)}
    judged = three.bank.evaluate([4, 0, 1])
    assert [(m.slot, m.trial_number) for m in judged] == [(0, 10), (1, 11), (4, 14)]
    assert [name for name, _ in three.workers[2].commands].count("evaluate") == 0


def test_slots_that_do_not_divide_evenly_are_all_used(trio: Callable[..., Trio]) -> None:
    three = trio(slots=4)
    three.fill()
    assert sorted(steps_of(three.bank.train_step())) == [0, 1, 2, 3]


def test_a_fault_waits_until_the_healthy_trials_have_told_their_step(
    trio: Callable[..., Trio],
) -> None:
    def on_step(number: int, step: int) -> None:
        if (number, step) in ((11, 2), (12, 2)):
            raise TrialFault((three.local_of(number),), f"proxy raised for {number}")

    three, undisturbed = trio(slots=3, on_step=on_step), trio(slots=3)
    for each in (three, undisturbed):
        each.fill()
        each.bank.train_step()
    expected = [undisturbed.bank.train_step() for _ in range(2)]
    assert three.bank.train_step() == expected[0][:1]  # slot 0 alone
    assert three.bank.evaluate([0])[0].step == 2  # what concerns others goes on
    for slot in (1, 2):
        with pytest.raises(TrialFault, match=f"proxy raised for 1{slot}") as raised:
            three.bank.train_step()
        assert raised.value.slots == (slot,)
        three.bank.evict(slot)
    # not a step was lost or made twice
    assert three.bank.train_step() == expected[1][:1]
    assert three.banks[0].steps_done == {10: 3}


def test_a_fault_where_nobody_is_healthy_is_raised_at_once_and_the_next_one_after_it(
    trio: Callable[..., Trio],
) -> None:
    def on_step(number: int, step: int) -> None:
        raise TrialFault((three.local_of(number),), f"proxy raised for {number}")

    three = trio(slots=3, on_step=on_step)
    three.fill()
    for slot in range(3):
        with pytest.raises(TrialFault, match=f"proxy raised for 1{slot}"):
            three.bank.train_step()
        three.bank.evict(slot)
    assert three.bank.train_step() == ()


def test_a_fault_of_a_trial_that_has_left_meanwhile_is_forgotten(
    trio: Callable[..., Trio],
) -> None:
    def on_step(number: int, step: int) -> None:
        if number == 11:
            raise OutOfMemoryFault((three.local_of(number),), "no room")

    three = trio(slots=3, on_step=on_step)
    three.fill()
    assert sorted(steps_of(three.bank.train_step())) == [0, 2]
    three.bank.evict(1)
    three.bank.admit(1, 77, ONE, None)
    assert sorted(steps_of(three.bank.train_step())) == [0, 1, 2]


def test_a_fault_in_an_evaluation_waits_as_well(trio: Callable[..., Trio]) -> None:
    three = trio(slots=3)
    three.fill()

    def on_evaluate(number: int, step: int) -> None:
        raise TrialFault((0,), "gold raised")

    three.banks[1]._on_evaluate = on_evaluate
    assert [m.slot for m in three.bank.evaluate([0, 1, 2])] == [0, 2]
    with pytest.raises(TrialFault, match="gold raised") as raised:
        three.bank.evaluate([1])
    assert raised.value.slots == (1,)
    with pytest.raises(TrialFault, match="gold raised"):  # raised by asking again, not kept twice
        three.bank.evaluate([1])


def test_a_worker_without_slots_is_closed(trio: Callable[..., Trio]) -> None:
    three = trio()
    three.bank.shrink(5)
    assert not three.workers[2].is_closed
    three.bank.shrink(2)
    assert three.workers[2].is_closed
    three.bank.shrink(0)
    assert three.bank.free_slots() == (1, 3, 4)


Real = tuple[WorkerBank, dict[int, Worker], Callable[[], object]]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Generator[Real]:
    """Two workers of one slot and one thread on the kitchen model, and a bank of one slot to compare with."""
    folder = tmp_path_factory.mktemp("real")
    overrides = ("evaluate.prompts=4", "trainer.max_new_tokens=12", "trainer.steps=3")
    spec = load_spec(write(folder, minimal()), overrides)
    ground = load_ground(spec.spec, find_inputs(spec), None)
    workers: dict[int, Worker] = {}

    def start(number: int, slots: int) -> Worker:
        workers[number] = Worker(number, 1, Job(spec, None, scale, slots))
        return workers[number]

    with torch_threads(1):
        scale = reference_scale(ground, spec.spec, None)
        bank = start_all(Placement(2, 2, 1), start)
        try:
            yield bank, workers, lambda: build_bank(ground, spec.spec, scale, 1)
        finally:
            bank.close()


def without_times(metrics: StepMetrics | EvalMetrics) -> StepMetrics | EvalMetrics:
    values = {k: v for k, v in metrics.values.items() if not k.startswith("time/")}
    return replace(metrics, slot=0, values=values)


@pytest.mark.slow
def test_a_trial_in_a_worker_is_bit_for_bit_that_of_a_bank_of_one(
    real: Real, tmp_path: Path
) -> None:
    bank, _, alone = real
    for slot, setting in enumerate((ONE, TWO)):
        bank.admit(slot, 7 + slot, setting, None)
    seen = [bank.train_step()]
    bank.foresee({slot: Ahead(1, never) for slot in (0, 1)})
    seen += [bank.train_step(), bank.evaluate([0, 1])]
    for slot in (0, 1):
        bank.save_checkpoint(slot, tmp_path / str(slot))
    seen.append(bank.train_step())
    for slot, setting in enumerate((ONE, TWO)):
        single = alone()
        single.admit(0, 7 + slot, setting, None)
        expected = [single.train_step(), single.train_step(), single.evaluate([0])]
        expected.append(single.train_step())
        assert [without_times(row[slot]) for row in seen] == [
            without_times(row) for (row,) in expected
        ]
    for slot in (0, 1):
        bank.evict(slot)
    # what one process saved goes on in the other, to the same bits
    assert bank.admit(0, 8, TWO, tmp_path / "1") == 2
    assert without_times(bank.train_step()[0]) == without_times(seen[-1][1])
    bank.evict(0)


@pytest.mark.slow
def test_a_killed_worker_costs_no_trial(real: Real, tmp_path: Path) -> None:
    bank, workers, _ = real
    pid = workers[1].pid
    assert pid is not None
    bank.admit(0, 0, ONE, None)
    bank.admit(1, 1, TWO, None)
    bank.train_step()
    bank.save_checkpoint(1, tmp_path / "last")
    os.kill(pid, signal.SIGKILL)
    assert [m.slot for m in bank.train_step()] == [0]
    with pytest.raises(SlotsLostFault, match=r"worker process 1 died \(signal 9\)") as raised:
        bank.train_step()
    assert raised.value.slots == (1,)
    bank.evict(1)
    bank.evict(0)
    assert bank.free_slots() == (0, 1)
    assert workers[1].pid != pid
    assert bank.admit(1, 1, TWO, tmp_path / "last") == 1
    assert bank.train_step()[0].step == 2
