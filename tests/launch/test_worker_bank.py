"""Several banks as one: slots, faults, dead workers. Fakes in this process, then real ones in others."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from spec_files import minimal, write

from kltune.errors import OutOfMemoryFault, SlotsLostFault, TrialFault
from kltune.launch.assemble import build_bank, find_inputs, load_ground, reference_scale
from kltune.launch.placement import Placement
from kltune.launch.threads import torch_threads
from kltune.launch.worker import Worker, WorkerDiedError
from kltune.launch.worker_bank import WorkerBank
from kltune.launch.worker_process import Job
from kltune.metrics.record import EvalMetrics, StepMetrics
from kltune.spec.load import load_spec
from kltune.spec.penalty import Penalty
from kltune.spec.trial import TrialSpec
from kltune.study.ledger import Ledger
from kltune.study.loop import run_search
from kltune.study.storage import open_study
from kltune.trial.record import read_trials
from tests.fake_bank import FakeBank, small_spec

ONE = TrialSpec(beta=0.01, penalty=Penalty.K2_LOSS, learning_rate=1e-3)
TWO = TrialSpec(beta=0.3, penalty=Penalty.K1_REWARD, learning_rate=1e-3)


class InlineWorker:
    """A worker whose bank is here; it answers when it is asked for the answer."""

    def __init__(self, number: int, bank: FakeBank) -> None:
        self.number = number
        self.bank = bank
        self.is_dead = False
        self.is_closed = False
        self.commands: list[tuple[str, tuple[object, ...]]] = []

    def send(self, name: str, *arguments: object) -> int:
        if self.is_dead:
            raise WorkerDiedError(f"worker process {self.number} died (signal 9)")
        self.commands.append((name, arguments))
        if name == "evict":
            self.receive(len(self.commands))
        return len(self.commands)

    def receive(self, number: int):
        if self.is_dead:
            raise WorkerDiedError(f"worker process {self.number} died (signal 9)")
        name, arguments = self.commands[number - 1]
        return getattr(self.bank, name)(*arguments)

    def ask(self, name: str, *arguments: object):
        return self.receive(self.send(name, *arguments))

    def close(self) -> None:
        self.is_closed = True


OnStep = Callable[[int, int], None]


class Trio:
    """Three workers of two slots each: this process, and two others."""

    def __init__(self, slots: int = 6, on_step: OnStep | None = None) -> None:
        per_worker = [len(range(worker, slots, 3)) for worker in range(3)]
        self.banks = [FakeBank(count, on_step=on_step) for count in per_worker]
        self.workers = [InlineWorker(number, self.banks[number]) for number in (1, 2)]
        self.bank = WorkerBank(self.banks[0], self.workers, Placement(3, slots, 1))

    def fill(self, spec: TrialSpec = ONE) -> None:
        for slot in self.bank.free_slots():
            self.bank.admit(slot, 10 + slot, spec, None)

    def local_of(self, number: int) -> int:
        """In the slot numbers of its own worker."""
        held = self.banks[(number - 10) % 3]._slots
        return next(slot for slot, trial in held.items() if trial.trial_number == number)


@pytest.fixture
def trio() -> Generator[Callable[..., Trio]]:
    made: list[Trio] = []

    def make(**how: object) -> Trio:
        made.append(Trio(**how))
        return made[-1]

    yield make
    for one in made:
        one.bank.close()


def steps_of(measured: tuple[StepMetrics, ...]) -> dict[int, tuple[int, int]]:
    return {m.slot: (m.trial_number, m.step) for m in measured}


def test_slots_are_spread_over_the_workers_and_measure_in_order(trio: Callable[..., Trio]) -> None:
    three = trio()
    three.fill()
    assert [sorted(t.trial_number for t in b._slots.values()) for b in three.banks] == [
        *([10, 13], [11, 14], [12, 15])
    ]
    assert steps_of(three.bank.train_step()) == {slot: (10 + slot, 1) for slot in range(6)}
    judged = three.bank.evaluate([4, 0, 1])
    assert [(m.slot, m.trial_number) for m in judged] == [(0, 10), (1, 11), (4, 14)]
    assert [name for name, _ in three.workers[1].commands].count("evaluate") == 0


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


def test_an_error_that_blames_nobody_is_raised_after_all_have_answered(
    trio: Callable[..., Trio],
) -> None:
    def on_step(number: int, step: int) -> None:
        if number == 10:
            raise RuntimeError("device lost")

    three = trio(slots=3, on_step=on_step)
    three.fill()
    with pytest.raises(RuntimeError, match="device lost"):
        three.bank.train_step()
    assert three.banks[2].steps_done == {12: 1}
    for slot in range(3):
        three.bank.evict(slot)
    assert three.bank.free_slots() == (0, 1, 2)


def test_a_dead_worker_takes_its_slots_along(trio: Callable[..., Trio]) -> None:
    three = trio()
    three.fill()
    three.bank.evict(4)  # slots 1 and 4 are worker 1's
    three.workers[0].is_dead = True
    assert sorted(steps_of(three.bank.train_step())) == [0, 2, 3, 5]
    assert (three.bank.num_slots, three.bank.free_slots()) == (4, ())
    with pytest.raises(SlotsLostFault, match=r"worker process 1 died \(signal 9\)") as raised:
        three.bank.train_step()
    assert raised.value.slots == (1,)
    three.bank.evict(1)
    assert sorted(steps_of(three.bank.train_step())) == [0, 2, 3, 5]
    assert three.workers[0].is_closed


def test_with_every_other_process_dead_this_one_goes_on_alone(trio: Callable[..., Trio]) -> None:
    three = trio(slots=3)
    three.bank.shrink(0)  # for lack of memory, which there is again
    for worker in three.workers:
        worker.is_dead = True
    for slot in (1, 2):
        with pytest.raises(SlotsLostFault) as raised:
            three.bank.admit(slot, 7, ONE, None)
        assert raised.value.slots == (slot,)
    assert (three.bank.num_slots, three.bank.free_slots()) == (1, (0,))
    three.bank.admit(0, 7, ONE, None)
    assert steps_of(three.bank.train_step()) == {0: (7, 1)}


@pytest.mark.parametrize("call", ["save_checkpoint", "save_adapter"])
def test_a_worker_that_dies_while_it_saves_is_a_fault_of_its_trials(
    trio: Callable[..., Trio], tmp_path: Path, call: str
) -> None:
    three = trio()
    three.fill()
    three.workers[1].is_dead = True
    with pytest.raises(SlotsLostFault) as raised:
        getattr(three.bank, call)(2, tmp_path)
    assert raised.value.slots == (2, 5)


def test_a_worker_without_slots_is_closed(trio: Callable[..., Trio]) -> None:
    three = trio()
    three.bank.shrink(5)
    assert not three.workers[1].is_closed
    three.bank.shrink(2)
    assert three.workers[1].is_closed
    three.bank.shrink(0)
    assert three.bank.free_slots() == (1, 3, 4)


def test_this_process_computes_with_the_workers_threads_until_the_bank_is_closed(
    trio: Callable[..., Trio],
) -> None:
    with torch_threads(2):
        three = trio()
        assert torch.get_num_threads() == 1
        three.bank.close()
        assert torch.get_num_threads() == 2
        assert all(worker.is_closed for worker in three.workers)


def test_a_search_over_workers_is_that_over_one_bank_whoever_dies(tmp_path: Path) -> None:
    def on_step(number: int, step: int) -> None:
        three.workers[0].is_dead |= (number, step) == (2, 8)

    three = Trio(slots=3, on_step=on_step)
    spec = small_spec(budget={"trials": 6, "retries": 0})
    end = run_search(three.bank, Ledger(open_study(tmp_path, spec)))
    three.bank.close()
    assert (end.reason, end.trials_ended) == (None, 6)
    records = read_trials(tmp_path)
    assert [[row["step"] for row in r.steps] for r in records] == [list(range(1, 21))] * 6
    ends = [(e["reason"], e["detail"]) for e in records[1].events if e["event"] == "ended"]
    assert ends[0] == ("interrupted", "worker process 1 died (signal 9)")
    assert [r.attempt for r in records] == [1, 2, 1, 1, 1, 1]


Real = tuple[WorkerBank, Worker, Callable[[], object]]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Generator[Real]:
    """Two workers of one slot and one thread on the kitchen model, and a bank of one slot to compare with."""
    folder = tmp_path_factory.mktemp("real")
    overrides = ("evaluate.prompts=4", "trainer.max_new_tokens=12", "trainer.steps=3")
    spec = load_spec(write(folder, minimal()), overrides)

    def ground():
        return load_ground(spec.spec, find_inputs(spec), None)

    with torch_threads(1):
        own = ground()
        scale = reference_scale(own, spec.spec, None)
        worker = Worker(1, 1, Job(spec, None, scale, 1))
        bank = WorkerBank(build_bank(own, spec.spec, scale, 1), [worker], Placement(2, 2, 1))
        try:
            worker.wait_until_ready()
            yield bank, worker, lambda: build_bank(ground(), spec.spec, scale, 1)
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
    seen = [bank.train_step(), bank.train_step(), bank.evaluate([0, 1])]
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
    # what the other process saved goes on here, to the same bits
    assert bank.admit(0, 8, TWO, tmp_path / "1") == 2
    assert without_times(bank.train_step()[0]) == without_times(seen[-1][1])
    bank.evict(0)


@pytest.mark.slow
def test_a_killed_worker_costs_no_trial(real: Real, tmp_path: Path) -> None:
    bank, worker, _ = real
    assert worker.pid is not None
    bank.admit(0, 0, ONE, None)
    bank.admit(1, 1, TWO, None)
    bank.train_step()
    bank.save_checkpoint(1, tmp_path / "last")
    os.kill(worker.pid, signal.SIGKILL)
    assert [m.slot for m in bank.train_step()] == [0]
    with pytest.raises(SlotsLostFault, match=r"worker process 1 died \(signal 9\)") as raised:
        bank.train_step()
    assert raised.value.slots == (1,)
    bank.evict(1)
    bank.evict(0)
    assert bank.free_slots() == (0,)
    assert bank.admit(0, 1, TWO, tmp_path / "last") == 1
    assert bank.train_step()[0].step == 2
