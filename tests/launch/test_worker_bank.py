"""Several banks as one: slots, faults, dead workers. Fakes in this process, then real ones in others."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from spec_files import minimal, write

from kltune.errors import OutOfMemoryFault, RunError, SlotsLostFault, TrialFault
from kltune.guard import StepWatch
from kltune.launch.ahead import Command
from kltune.launch.assemble import build_bank, find_inputs, load_ground, reference_scale
from kltune.launch.placement import Placement
from kltune.launch.threads import torch_threads
from kltune.launch.worker import Worker, WorkerDiedError
from kltune.launch.worker_bank import WorkerBank, start_all
from kltune.launch.worker_process import Halts, Job, Skipped, carried_out, is_halted
from kltune.metrics.record import EvalMetrics, StepMetrics
from kltune.spec.load import load_spec
from kltune.spec.penalty import Penalty
from kltune.spec.study import KLGuardSpec
from kltune.spec.trial import KLUnit, TrialSpec
from kltune.study.ledger import Ledger
from kltune.study.loop import run_search
from kltune.study.storage import open_study
from kltune.trainer.protocol import Ahead
from kltune.trial.record import read_trials
from tests.fake_bank import FakeBank, small_spec

ONE = TrialSpec(beta=0.01, penalty=Penalty.K2_LOSS, learning_rate=1e-3)
TWO = TrialSpec(beta=0.3, penalty=Penalty.K1_REWARD, learning_rate=1e-3)


class InlineWorker:
    """A worker whose bank is here; it carries a command out when it is sent, as one that is fast."""

    def __init__(self, number: int, bank: FakeBank) -> None:
        self.number = number
        self.bank = bank
        self.is_dead = False
        self.is_closed = False
        self.commands: list[tuple[str, tuple[object, ...]]] = []
        self.replies: dict[int, tuple[Any, Exception | None]] = {}

    def send(self, name: str, *arguments: object) -> int:
        self._look()
        self.commands.append((name, arguments))
        self.replies[len(self.commands)] = carried_out(self.bank, name, arguments)
        return len(self.commands)

    def send_chain(
        self, commands: Sequence[Command], halts: Halts | None, most_s: float
    ) -> list[int]:
        numbers: list[int] = []
        is_broken = False
        for name, arguments in commands:
            self._look()
            if is_broken:
                self.commands.append((name, arguments))
                self.replies[len(self.commands)] = (Skipped(), None)
            else:
                self.send(name, *arguments)
            value, error = self.replies[len(self.commands)]
            if not is_broken:
                is_broken = error is not None or is_halted(halts, name, value)
            numbers.append(len(self.commands))
        return numbers

    def receive(self, number: int):
        self._look()
        value, error = self.replies[number]
        if error is not None:
            raise error
        return value

    def ask(self, name: str, *arguments: object):
        return self.receive(self.send(name, *arguments))

    def close(self) -> None:
        self.is_closed = True

    def _look(self) -> None:
        if self.is_dead:
            raise WorkerDiedError(f"worker process {self.number} died (signal 9)")


OnStep = Callable[[int, int], None]


class Trio:
    """Three workers of two slots each."""

    def __init__(
        self, slots: int = 6, on_step: OnStep | None = None, *, is_restarted: bool = False
    ) -> None:
        self.on_step = on_step
        per_worker = [len(range(worker, slots, 3)) for worker in range(3)]
        self.banks = [FakeBank(count, on_step=on_step) for count in per_worker]
        self.workers = [InlineWorker(number, self.banks[number]) for number in range(3)]
        restart = self.restarted if is_restarted else None
        self.bank = WorkerBank(self.workers, Placement(3, slots, 1), restart)

    def restarted(self, number: int) -> InlineWorker:
        old = self.banks[number]
        self.banks[number] = FakeBank(old.num_slots, on_step=self.on_step)
        self.workers[number] = InlineWorker(number, self.banks[number])
        return self.workers[number]

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


@pytest.mark.parametrize("error", [RuntimeError("device lost"), MemoryError("no room")])
def test_an_error_that_blames_nobody_costs_the_trials_of_its_worker_alone_which_is_started_anew(
    trio: Callable[..., Trio], error: Exception
) -> None:
    def on_step(number: int, step: int) -> None:
        if number == 10:
            raise error

    three = trio(slots=3, on_step=on_step, is_restarted=True)
    broken = three.workers[0]
    three.fill()
    assert steps_of(three.bank.train_step()) == {1: (11, 1), 2: (12, 1)}
    text = f"worker process 0 failed: {type(error).__name__}: {error}; started again (1 of 2)"
    with pytest.raises(SlotsLostFault) as raised:
        three.bank.train_step()
    assert (raised.value.slots, str(raised.value)) == ((0,), text)
    assert broken.is_closed
    three.bank.evict(0)
    three.bank.admit(0, 13, ONE, None)
    assert sorted(steps_of(three.bank.train_step())) == [0, 1, 2]


@pytest.mark.parametrize("call", ["admit", "save_checkpoint"])
def test_an_error_that_blames_nobody_is_a_fault_of_its_workers_trials_whatever_was_asked(
    trio: Callable[..., Trio], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    three = trio(slots=3, is_restarted=True)

    def fail(*_: object) -> None:
        raise RuntimeError("device lost")

    arguments = {"admit": (11, ONE, None), "save_checkpoint": (tmp_path,)}[call]
    if call != "admit":
        three.bank.admit(1, 11, ONE, None)
    monkeypatch.setattr(three.banks[1], call, fail)
    with pytest.raises(SlotsLostFault, match="worker process 1 failed: RuntimeError: device lost"):
        getattr(three.bank, call)(1, *arguments)


def test_a_dead_worker_takes_its_slots_along(trio: Callable[..., Trio]) -> None:
    three = trio()
    three.fill()
    three.bank.evict(4)  # slots 1 and 4 are worker 1's
    three.workers[1].is_dead = True
    assert sorted(steps_of(three.bank.train_step())) == [0, 2, 3, 5]
    assert (three.bank.num_slots, three.bank.free_slots()) == (4, ())
    with pytest.raises(SlotsLostFault, match=r"worker process 1 died \(signal 9\)") as raised:
        three.bank.train_step()
    assert raised.value.slots == (1,)
    three.bank.evict(1)
    assert sorted(steps_of(three.bank.train_step())) == [0, 2, 3, 5]
    assert three.workers[1].is_closed


def test_with_every_worker_dead_the_search_is_told_so(trio: Callable[..., Trio]) -> None:
    three = trio(slots=3)
    for worker in three.workers:
        worker.is_dead = True
    for slot in (0, 1):
        with pytest.raises(SlotsLostFault) as raised:
            three.bank.admit(slot, 7, ONE, None)
        assert raised.value.slots == (slot,)
    with pytest.raises(RunError, match=r"worker process 2 died \(signal 9\); no worker is left"):
        three.bank.admit(2, 7, ONE, None)


def test_a_dead_worker_is_started_anew_and_its_slots_are_free_once_their_trials_are_told(
    trio: Callable[..., Trio],
) -> None:
    three = trio(slots=3, is_restarted=True)
    three.fill()
    three.workers[1].is_dead = True
    assert sorted(steps_of(three.bank.train_step())) == [0, 2]
    with pytest.raises(SlotsLostFault, match="worker process 1 died") as raised:
        three.bank.train_step()
    assert (raised.value.slots, three.bank.free_slots(), three.bank.num_slots) == ((1,), (), 3)
    three.bank.evict(1)
    assert three.workers[1].commands == []  # the new process knows nothing of that trial
    assert three.bank.free_slots() == (1,)
    three.bank.admit(1, 11, ONE, None)
    assert steps_of(three.bank.train_step())[1] == (11, 1)
    assert three.banks[1].steps_done == {11: 1}  # of the new process


def die_at_admission(three: Trio, worker: int, trial: int) -> str:
    three.workers[worker].is_dead = True
    with pytest.raises(SlotsLostFault) as raised:
        three.bank.admit(worker, trial, ONE, None)
    return str(raised.value).removeprefix(f"worker process {worker} died (signal 9); ")


def test_a_worker_that_dies_again_and_again_is_given_up_which_is_said(
    trio: Callable[..., Trio],
) -> None:
    three = trio(slots=3, is_restarted=True)
    assert [die_at_admission(three, 1, trial) for trial in (11, 12, 13)] == [
        "started again (1 of 2)",
        "started again (2 of 2)",
        "given up after 2 restarts, 2 slots left",
    ]
    assert (three.bank.num_slots, three.bank.free_slots()) == (2, (0, 2))


def test_one_trial_that_dies_again_and_again_costs_no_worker(trio: Callable[..., Trio]) -> None:
    three = trio(slots=3, is_restarted=True)
    told = [die_at_admission(three, worker, 11) for worker in (1, 1, 0)]
    assert told == ["started again (1 of 2)", "started again", "started again"]
    assert three.bank.num_slots == 3
    assert die_at_admission(three, 1, 12) == "started again (1 of 2)"  # as if it had never been


def test_a_worker_that_can_not_be_started_again_is_given_up(
    trio: Callable[..., Trio], monkeypatch: pytest.MonkeyPatch
) -> None:
    three = trio(slots=3, is_restarted=True)

    def refuse(number: int) -> InlineWorker:
        raise RunError("the model is gone")

    three.bank._restart = refuse
    assert die_at_admission(three, 1, 11) == (
        "given up, since it could not be started again (the model is gone), 2 slots left"
    )


def test_a_worker_that_died_with_several_trials_takes_one_at_a_time_from_then_on(
    trio: Callable[..., Trio],
) -> None:
    three = trio(slots=6, is_restarted=True)
    three.fill()
    three.workers[1].is_dead = True
    assert sorted(steps_of(three.bank.train_step())) == [0, 2, 3, 5]
    with pytest.raises(SlotsLostFault) as raised:
        three.bank.train_step()
    assert raised.value.slots == (1, 4)
    assert str(raised.value).endswith("; started again (1 of 2), with one trial at a time")
    three.bank.evict(1)
    three.bank.evict(4)
    assert (three.bank.free_slots(), three.bank.num_slots) == ((1,), 5)
    three.bank.admit(1, 14, ONE, None)
    three.workers[1].is_dead = True
    three.bank.train_step()
    with pytest.raises(SlotsLostFault) as raised:
        three.bank.train_step()
    assert raised.value.slots == (1,)


@pytest.mark.parametrize("call", ["save_checkpoint", "save_adapter"])
def test_a_worker_that_dies_while_it_saves_is_a_fault_of_its_trials(
    trio: Callable[..., Trio], tmp_path: Path, call: str
) -> None:
    three = trio()
    three.fill()
    three.workers[2].is_dead = True
    with pytest.raises(SlotsLostFault) as raised:
        getattr(three.bank, call)(2, tmp_path)
    assert raised.value.slots == (2, 5)


def test_a_worker_without_slots_is_closed(trio: Callable[..., Trio]) -> None:
    three = trio()
    three.bank.shrink(5)
    assert not three.workers[2].is_closed
    three.bank.shrink(2)
    assert three.workers[2].is_closed
    three.bank.shrink(0)
    assert three.bank.free_slots() == (1, 3, 4)


def never(metrics: StepMetrics) -> bool:
    return False


def test_steps_that_are_foreseen_are_sent_ahead_and_handed_out_one_by_one(
    trio: Callable[..., Trio],
) -> None:
    three, undisturbed = trio(slots=3), trio(slots=3)
    for each in (three, undisturbed):
        each.fill()
        each.bank.evaluate([0, 1, 2])  # how long it takes is not known before
    expected = [undisturbed.bank.train_step() for _ in range(5)]
    judged = undisturbed.bank.evaluate([0, 2])
    seen = [three.bank.train_step()]  # how long a step takes is not known before
    for left in (4, 3, 2, 1):
        three.bank.foresee({0: Ahead(left, never), 2: Ahead(left, never)})
        seen.append(three.bank.train_step())
        if left == 4:
            assert [b.steps_done[10 + n] for n, b in enumerate(three.banks)] == [5, 2, 5]
    assert seen == expected
    assert three.bank.evaluate([0, 2]) == judged
    names = [name for name, _ in three.workers[0].commands]
    assert names.count("evaluate") == 2  # the first, and the one that was sent ahead


def test_a_worker_waits_after_a_step_that_may_end_a_trial(trio: Callable[..., Trio]) -> None:
    three = trio(slots=3)
    three.fill(TrialSpec(beta=0.0, learning_rate=1e-3))
    three.bank.train_step()
    watch = StepWatch(KLGuardSpec(limit=0.2), KLUnit.TOKEN)
    three.bank.foresee({slot: Ahead(15, watch) for slot in range(3)})
    seen = [three.bank.train_step()]
    ahead = three.banks[0].steps_done[10]
    assert 3 < ahead < 16  # it stopped where the KL passed the limit
    while seen[-1][0].step < ahead:
        assert seen[-1][0].kl_token <= 0.2
        seen.append(three.bank.train_step())
    assert seen[-1][0].kl_token > 0.2
    assert three.bank.evaluate([0])[0].step == ahead  # judged at the weights of that step
    assert three.bank.train_step()[0].step == ahead + 1


def test_what_was_done_ahead_is_not_lost_when_a_search_is_interrupted(
    trio: Callable[..., Trio], tmp_path: Path
) -> None:
    three = trio(slots=3)
    three.fill()
    three.bank.evaluate([0, 1, 2])
    three.bank.train_step()
    three.bank.foresee({0: Ahead(3, never), 1: Ahead(5, never), 2: Ahead(1, never)})
    three.bank.train_step()
    caught_up: list[dict[int, tuple[int, int]]] = []
    while measured := three.bank.catch_up():
        caught_up.append(steps_of(measured))
    assert caught_up == [
        {0: (10, 3), 1: (11, 3)},
        {0: (10, 4), 1: (11, 4)},
        *({1: (11, step)} for step in (5, 6)),
    ]
    three.bank.save_checkpoint(
        1, tmp_path / "last"
    )  # an evaluation that nobody asked for is in the way
    assert three.bank.evaluate([1])[0].step == 6


def test_a_fault_breaks_what_was_sent_ahead(trio: Callable[..., Trio]) -> None:
    def on_step(number: int, step: int) -> None:
        if (number, step) == (11, 3):
            raise TrialFault((three.local_of(number),), "proxy raised")

    three = trio(slots=3, on_step=on_step)
    three.fill()
    three.bank.evaluate([0, 1, 2])
    three.bank.train_step()
    three.bank.foresee({slot: Ahead(5, never) for slot in range(3)})
    assert sorted(steps_of(three.bank.train_step())) == [0, 1, 2]
    assert sorted(steps_of(three.bank.train_step())) == [0, 2]
    with pytest.raises(TrialFault, match="proxy raised"):
        three.bank.train_step()
    three.bank.evict(1)
    assert {m.step for m in three.bank.train_step()} == {4}
    assert [name for name, _ in three.workers[1].commands].count("evaluate") == 2
    assert isinstance(three.workers[1].replies[len(three.workers[1].commands) - 1][0], Skipped)


def test_a_worker_that_went_on_although_something_was_to_be_decided_is_noticed(
    trio: Callable[..., Trio],
) -> None:
    three = trio(slots=3)
    three.fill()
    three.bank.train_step()
    three.bank.foresee({slot: Ahead(5, never) for slot in range(3)})
    three.bank.train_step()
    with pytest.raises(AssertionError, match="went on"):
        three.bank.evaluate([0])


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_search_over_workers_is_that_over_one_bank_whoever_dies(
    tmp_path: Path, is_restarted: bool
) -> None:
    def on_step(number: int, step: int) -> None:
        three.workers[1].is_dead |= (number, step) == (2, 8)

    three = Trio(slots=3, on_step=on_step, is_restarted=is_restarted)
    spec = small_spec(budget={"trials": 6, "retries": 0})
    end = run_search(three.bank, Ledger(open_study(tmp_path, spec)))
    three.bank.close()
    assert (end.reason, end.trials_ended) == (None, 6)
    records = read_trials(tmp_path)
    assert [[row["step"] for row in r.steps] for r in records] == [list(range(1, 21))] * 6
    ends = [(e["reason"], e["detail"]) for e in records[1].events if e["event"] == "ended"]
    told = "started again (1 of 2)" if is_restarted else "given up, 2 slots left"
    assert ends[0] == ("interrupted", f"worker process 1 died (signal 9); {told}")
    assert [r.attempt for r in records] == [1, 2, 1, 1, 1, 1]


@pytest.mark.parametrize("slots", [3, 6])
def test_a_trial_that_kills_its_process_every_time_is_the_only_one_that_fails(
    tmp_path: Path, slots: int
) -> None:
    def on_step(number: int, step: int) -> None:
        if number == 1 and step == 8:
            worker = next(
                w
                for w in three.workers
                if any(held.trial_number == 1 for held in w.bank._slots.values())
            )
            worker.is_dead = True

    three = Trio(slots=slots, on_step=on_step, is_restarted=True)
    spec = small_spec(budget={"trials": 8, "retries": 0})
    end = run_search(three.bank, Ledger(open_study(tmp_path, spec)))
    workers = {three.bank._place(slot)[0] for slot in three.bank.free_slots()}
    three.bank.close()
    assert (end.reason, end.trials_ended) == (None, 8)
    outcomes = {r.number: r.outcome for r in read_trials(tmp_path) if r.outcome}
    assert {n for n, o in outcomes.items() if str(o.verdict.reason) != "done"} == {1}
    detail = outcomes[1].verdict.detail
    assert detail.startswith("its worker process died 3 times: worker process ")
    assert workers == {0, 1, 2}


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
