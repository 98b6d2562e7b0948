"""The loop where trials, slots or the device fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from optuna.trial import TrialState

from kltune.errors import OutOfMemoryFault, RunError, SlotsLostFault, TrialFault
from kltune.metrics.jsonl import read_rows
from kltune.trial.outcome import StopReason
from kltune.trial.record import read_trials
from tests.fake_bank import FakeBank, small_spec
from tests.small_search import (
    Watcher,
    ended,
    optuna_trials,
    search,
    stop_after,
)


def test_a_raising_reward_fails_its_trial_alone_and_is_not_retried(tmp_path: Path) -> None:
    def on_step(number: int, step: int) -> None:
        if number == 1 and step == 3:
            slot = bank_slot(bank, 1)
            raise TrialFault((slot,), "proxy my:score raised ValueError: no number")

    bank = FakeBank(2, on_step=on_step)
    spec = small_spec(budget={"trials": 4})
    end = search(tmp_path, spec, bank)
    outcomes = ended(tmp_path)
    assert {n: str(o.verdict.reason) for n, o in outcomes.items()} == {
        0: "done",
        1: "error",
        2: "done",
        3: "done",
    }
    assert outcomes[1].verdict.detail == "proxy my:score raised ValueError: no number"
    states = [t.state for t in optuna_trials(tmp_path, spec)]
    assert states == [TrialState.COMPLETE, TrialState.FAIL, *[TrialState.COMPLETE] * 2]
    assert end.trials_ended == 4
    assert bank.steps_done == {0: 20, 1: 2, 2: 20, 3: 20}


def bank_slot(bank: FakeBank, number: int) -> int:
    return next(slot for slot, held in bank._slots.items() if held.trial_number == number)


def test_out_of_memory_fails_one_trial_of_four(tmp_path: Path) -> None:  # field case D1
    def on_step(number: int, step: int) -> None:
        if number == 1 and step == 2:
            raise OutOfMemoryFault((bank_slot(bank, 1),), "out of memory with 1 row")

    bank = FakeBank(1, on_step=on_step)
    spec = small_spec(budget={"trials": 4, "retries": 1})
    search(tmp_path, spec, bank)
    reasons = [str(o.verdict.reason) for o in ended(tmp_path).values()]
    assert reasons == ["done", "out_of_memory", "done", "done"]
    assert [number for number, _ in bank.admissions] == [0, 1, 1, 2, 3]


def too_many_at(limit: int) -> tuple[FakeBank, list[int]]:
    """A bank of 4 slots on a device that holds ``limit`` trials, and who was blamed."""
    blamed: list[int] = []

    def on_step(number: int, step: int) -> None:
        if step > 2 and len(bank._slots) > limit:  # so that all four have made a checkpoint
            last = max(bank._slots)
            blamed.append(bank._slots[last].trial_number)
            raise OutOfMemoryFault((last,), "not even one row fits")

    bank = FakeBank(4, on_step=on_step)
    return bank, blamed


def test_out_of_memory_makes_the_bank_smaller_and_no_trial_fails(tmp_path: Path) -> None:
    bank, blamed = too_many_at(2)
    spec = small_spec(budget={"trials": 6, "retries": 0}, evaluate={"every": 2, "prompts": 16})
    end = search(tmp_path, spec, bank)
    assert (end.reason, end.trials_ended, bank.num_slots) == (None, 6, 2)
    assert blamed == [3, 2]
    assert max(bank.occupancy[5:]) == 2
    for record in read_trials(tmp_path):
        reasons = [e["reason"] for e in record.events if e["event"] == "ended"]
        assert reasons == [*["interrupted"] * (record.number in blamed), "done"]
        assert [row["step"] for row in record.steps] == list(range(1, 21))
    assert bank.steps_done == dict.fromkeys(range(6), 20)  # they went on from their checkpoints
    detail = next(e["detail"] for e in read_trials(tmp_path)[3].events if e["event"] == "ended")
    assert detail.startswith("out of memory with 4 trials at once; going on with 3 (")


def test_one_trial_that_does_not_fit_alone_fails_as_before(tmp_path: Path) -> None:
    bank, blamed = too_many_at(0)
    spec = small_spec(budget={"trials": 2, "retries": 1}, evaluate={"every": 2, "prompts": 16})
    search(tmp_path, spec, bank)
    assert bank.num_slots == 1
    assert {str(o.verdict.reason) for o in ended(tmp_path).values()} == {"out_of_memory"}
    assert blamed.count(0) == 2
    assert len(blamed) <= 5


def test_slots_that_are_free_when_memory_runs_out_are_given_up_as_well(tmp_path: Path) -> None:
    bank, _ = too_many_at(1)
    spec = small_spec(budget={"trials": 2}, evaluate={"every": 2, "prompts": 16})
    search(
        tmp_path, spec, bank
    )  # two trials in four slots: three of them would only be tried in vain
    assert bank.num_slots == 1
    assert [number for number, _ in bank.admissions] == [0, 1, 1]


def test_memory_that_runs_out_without_a_trial_to_blame_makes_the_bank_smaller(
    tmp_path: Path,
) -> None:
    def on_step(number: int, step: int) -> None:
        if len(bank._slots) > 2:
            raise RuntimeError("CUDA error: out of memory")

    bank = FakeBank(4, on_step=on_step)
    end = search(tmp_path, small_spec(budget={"trials": 4}), bank)
    assert end.reason is None
    assert bank.num_slots == 2
    assert bank.steps_done == dict.fromkeys(range(4), 20)


def test_a_trial_whose_slot_is_lost_goes_on_in_another_and_has_not_failed(tmp_path: Path) -> None:
    lost: list[int] = []

    def on_step(number: int, step: int) -> None:
        if step == 8 and not lost:
            lost.append(number)
            bank._open.discard(1)
            raise SlotsLostFault((1,), "worker process 1 died (signal 9)")

    bank = FakeBank(2, on_step=on_step)
    end = search(tmp_path, small_spec(budget={"trials": 3, "retries": 0}), bank)
    assert (end.reason, end.trials_ended) == (None, 3)
    record = read_trials(tmp_path)[1]
    ends = [(e["reason"], e["detail"]) for e in record.events if e["event"] == "ended"]
    assert ends[0] == ("interrupted", "worker process 1 died (signal 9)")
    assert ends[1][0] == "done"
    assert bank.steps_done == {0: 20, 1: 7 + 15, 2: 20}


@pytest.mark.parametrize("save", ["save_adapter", "save_checkpoint"])
def test_a_slot_that_is_lost_while_it_is_saved_costs_one_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save: str
) -> None:
    bank, calls = FakeBank(2), []
    keep = getattr(bank, save)

    def lose(slot: int, folder: Path) -> None:
        if slot == 1:
            calls.append(slot)
            if len(calls) == 3:
                bank._open.discard(1)
                raise SlotsLostFault((1,), "worker process 1 died (signal 9)")
        keep(slot, folder)

    monkeypatch.setattr(bank, save, lose)
    watcher = Watcher()
    search(tmp_path, small_spec(budget={"trials": 2}), bank, observers=[watcher])
    assert [str(o.verdict.reason) for o in watcher.outcomes] == ["interrupted", "done", "done"]
    assert [row["step"] for row in read_trials(tmp_path)[1].evals] == [0, 5, 10, 15, 20]


def test_a_stop_after_a_slot_was_lost_still_ends_cleanly(tmp_path: Path) -> None:
    bank = FakeBank(2)

    def refuse(slot: int, folder: Path) -> None:
        raise SlotsLostFault((slot,), "worker process 1 died (signal 9)")

    bank.save_checkpoint = refuse
    spec = small_spec(budget={"trials": 2}, evaluate={"every": 20, "prompts": 16})
    end = search(tmp_path, spec, bank, should_stop=stop_after(4))
    assert end.reason == "stopped by a signal (SIGTERM)"
    assert {str(o.verdict.reason) for o in ended(tmp_path).values()} == {"interrupted"}


def test_a_failed_trial_is_tried_again_although_the_budget_seemed_used(tmp_path: Path) -> None:
    def on_step(number: int, step: int) -> None:
        if number == 1 and len(bank.admissions) == 2:
            raise OutOfMemoryFault((bank_slot(bank, 1),), "out of memory with 1 row")

    bank = FakeBank(3, on_step=on_step)
    search(tmp_path, small_spec(budget={"trials": 2}), bank)
    assert [number for number, _ in bank.admissions] == [0, 1, 1]


def test_a_fault_in_an_evaluation_ends_that_trial_and_judges_the_others(tmp_path: Path) -> None:
    def on_evaluate(number: int, step: int) -> None:
        if number == 0 and step == 5:
            raise TrialFault((bank_slot(bank, 0),), "gold my:gold hung for 60 s")

    bank = FakeBank(2, on_evaluate=on_evaluate)
    search(tmp_path, small_spec(budget={"trials": 2}), bank)
    outcomes = ended(tmp_path)
    assert outcomes[0].verdict.detail == "gold my:gold hung for 60 s"
    assert outcomes[0].value is None
    assert outcomes[1].verdict.reason is StopReason.DONE
    assert [r["step"] for r in read_rows(tmp_path / "trials/00001/evals.jsonl")] == [
        *[0, 5, 10, 15, 20]
    ]


def test_a_fault_in_the_last_evaluation_fails_the_trial(tmp_path: Path) -> None:
    def on_evaluate(number: int, step: int) -> None:
        if step > 0:
            raise TrialFault((0,), "gold raised")

    spec = small_spec(
        budget={"trials": 1}, search={"beta": 0.001}, guards={"kl": {"limit": 0.1, "patience": 1}}
    )
    search(tmp_path, spec, FakeBank(1, on_evaluate=on_evaluate))
    assert ended(tmp_path)[0].verdict.reason is StopReason.ERROR


def test_training_that_always_fails_stops_after_the_retries(tmp_path: Path) -> None:
    def on_step(number: int, step: int) -> None:  # field case B6
        raise RuntimeError("device lost")

    bank = FakeBank(1, on_step=on_step)
    spec = small_spec(budget={"trials": 3, "retries": 2})
    with pytest.raises(RunError, match="3 times in a row: RuntimeError: device lost"):
        search(tmp_path, spec, bank)
    assert [number for number, _ in bank.admissions] == [0, 0, 0]
    assert [t.state for t in optuna_trials(tmp_path, spec)] == [TrialState.FAIL] * 3


def test_one_failure_of_the_device_costs_an_attempt_and_goes_on_from_the_checkpoint(
    tmp_path: Path,
) -> None:
    failed = []

    def on_step(number: int, step: int) -> None:
        if step == 8 and not failed:
            failed.append(number)
            raise RuntimeError("CUDA error: out of memory")

    bank = FakeBank(2, on_step=on_step)
    end = search(tmp_path, small_spec(budget={"trials": 2}), bank)
    assert (end.reason, end.trials_ended) == (None, 4)
    assert bank.steps_done == {0: 7 + 15, 1: 7 + 15}
    for record in read_trials(tmp_path):
        reasons = [e["reason"] for e in record.events if e["event"] == "ended"]
        assert reasons == ["out_of_memory", "done"]
        assert [row["step"] for row in record.steps] == list(range(1, 21))


def test_an_error_of_ours_flies_and_the_trials_go_on_next_time(tmp_path: Path) -> None:
    def on_step(number: int, step: int) -> None:
        if step == 8:
            raise AssertionError("a bug")

    spec = small_spec(budget={"trials": 2})
    with pytest.raises(AssertionError, match="a bug"):
        search(tmp_path, spec, FakeBank(2, on_step=on_step))
    assert {str(o.verdict.reason) for o in ended(tmp_path).values()} == {"interrupted"}
    bank = FakeBank(2)
    search(tmp_path, spec, bank)
    assert bank.steps_done == {0: 15, 1: 15}
    assert len(optuna_trials(tmp_path, spec)) == 4


def loses(bank: FakeBank, number: int, at: int) -> None:
    """The process of trial ``number`` dies before step ``at``, every time."""

    def on_step(trial_number: int, step: int) -> None:
        if (trial_number, step) == (number, at):
            slots = (bank_slot(bank, number),)
            raise SlotsLostFault(slots, "worker process 1 died (signal 11); started again")

    bank._on_step = on_step


def test_a_trial_that_kills_its_process_three_times_fails_and_the_study_goes_on(
    tmp_path: Path,
) -> None:
    bank, spec = FakeBank(2), small_spec(budget={"trials": 4, "retries": 5})
    loses(bank, 1, at=8)
    end = search(tmp_path, spec, bank, should_stop=stop_after(150))  # it might go on for ever
    assert (end.reason, end.trials_ended) == (None, 4)
    events = [e for e in read_trials(tmp_path)[1].events if e["event"] == "ended"]
    assert [e["reason"] for e in events] == ["interrupted", "interrupted", "error"]
    assert events[-1]["detail"] == (
        "its worker process died 3 times: worker process 1 died (signal 11); started again"
    )
    reasons = [str(outcome.verdict.reason) for outcome in ended(tmp_path).values()]
    assert reasons == ["done", "error", "done", "done"]


def test_lost_attempts_count_over_sessions(tmp_path: Path) -> None:
    spec = small_spec(budget={"trials": 1})
    for steps in (2, 9, 9):
        bank = FakeBank(1)
        loses(bank, 0, at=1)
        search(tmp_path, spec, bank, should_stop=stop_after(steps))
    events = [e for e in read_trials(tmp_path)[0].events if e["event"] == "ended"]
    assert [e["reason"] for e in events] == ["interrupted", "interrupted", "error", "error"]
    # the last session gives it one more chance, as it does any trial that failed
    assert events[-1]["detail"].startswith("its worker process died 4 times: ")


def test_a_neighbour_in_a_process_that_dies_is_not_blamed(tmp_path: Path) -> None:
    deaths: list[int] = []
    bank = FakeBank(2)

    def on_step(number: int, step: int) -> None:
        if step == 8 and len(bank._slots) == 2 and len(deaths) < 5:
            deaths.append(number)
            raise SlotsLostFault((0, 1), "worker process 1 died (signal 11)")

    bank._on_step = on_step
    search(tmp_path, small_spec(budget={"trials": 2}), bank)
    assert len(deaths) == 5
    assert {str(o.verdict.reason) for o in ended(tmp_path).values()} == {"done"}


def test_what_a_second_ctrl_c_leaves_behind_is_named_without_a_loose_end(tmp_path: Path) -> None:
    def on_step(number: int, step: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(tmp_path, small_spec(budget={"trials": 1}), FakeBank(1, on_step=on_step))
    assert ended(tmp_path)[0].verdict.detail == "KeyboardInterrupt"
