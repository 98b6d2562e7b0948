"""Workers that die or fail: whose trials it costs, what is started again, and what the search makes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kltune.errors import RunError, SlotsLostFault
from kltune.study.ledger import Ledger
from kltune.study.loop import run_search
from kltune.study.storage import open_study
from kltune.trial.record import read_trials
from tests.fake_bank import small_spec
from tests.inline_workers import ONE, InlineWorker, Trio, steps_of


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
