from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from kltune.errors import OutOfMemoryFault, RunError, SlotsLostFault, TrialFault
from kltune.metrics.jsonl import read_rows
from kltune.metrics.record import EvalMetrics, RewardScale, StepMetrics
from kltune.spec.study import StudySpec
from kltune.spec.trial import TrialSpec
from kltune.study.ledger import Ledger
from kltune.study.loop import SearchEnd, run_search
from kltune.study.observer import Admitted
from kltune.study.space import fixed_trials
from kltune.study.storage import open_study
from kltune.trial.outcome import StopReason, TrialOutcome
from kltune.trial.record import TrialRecord, read_trials
from tests.fake_bank import FakeBank, gold_at, kl_at, small_spec

SCALE = RewardScale(sigma=0.5, std=0.5, mean=0.0, num_groups=8, mean_tokens=20.0)
FIXED_BETA = {"search": {"beta": {"log": [0.001, 0.01]}}}
"""A search in which every trial reaches about 0.9 to 1 nats per token."""


def ledger_of(path: Path, spec: StudySpec) -> Ledger:
    return Ledger(open_study(path, spec), fixed_trials(spec, SCALE))


def search(path: Path, spec: StudySpec, bank: FakeBank | None = None, **how) -> SearchEnd:
    return run_search(bank or FakeBank(), ledger_of(path, spec), SCALE.sigma, **how)


def optuna_trials(path: Path, spec: StudySpec) -> list[optuna.trial.FrozenTrial]:
    return open_study(path, spec).optuna_study.get_trials()


def ended(path: Path) -> dict[int, TrialOutcome]:
    return {r.number: r.outcome for r in read_trials(path) if r.outcome is not None}


class Watcher:
    def __init__(self) -> None:
        self.events: list[str] = []
        self.outcomes: list[TrialOutcome] = []

    def admitted(self, event: Admitted) -> None:
        assert (event.folder / "config.json").exists()
        self.events.append(f"{event.trial_number} admitted at {event.step}")

    def stepped(self, metrics: StepMetrics) -> None:
        self.events.append(f"{metrics.trial_number} stepped {metrics.step}")

    def evaluated(self, metrics: EvalMetrics) -> None:
        self.events.append(f"{metrics.trial_number} evaluated {metrics.step}")

    def ended(self, outcome: TrialOutcome) -> None:
        self.outcomes.append(outcome)
        self.events.append(f"{outcome.trial_number} ended {outcome.verdict.reason}")


def test_a_whole_search_trains_judges_and_tells_every_trial(tmp_path: Path) -> None:
    spec = small_spec(budget={"trials": 5}, baselines=["trl-grpo-0.18"])
    bank = FakeBank(num_slots=2)
    end = search(tmp_path, spec, bank)
    assert (end.reason, end.trials_ended) == (None, 5)
    assert end.bookkeeping_s > 0
    trials = optuna_trials(tmp_path, spec)
    assert [t.state for t in trials] == [TrialState.COMPLETE] * 5
    assert bank.steps_done == dict.fromkeys(range(5), 20)
    for record, trial in zip(read_trials(tmp_path), trials, strict=True):
        assert [row["step"] for row in record.steps] == list(range(1, 21))
        assert [row["step"] for row in record.evals] == [0, 5, 10, 15, 20]
        assert record.outcome is not None
        assert record.outcome.verdict.detail == "ran its course of 20 steps"
        assert trial.value == pytest.approx(record.outcome.value)
        assert sorted(trial.intermediate_values) == [0, 5, 10, 15, 20]
        assert (record.folder / "checkpoints" / "last" / "slot.json").exists()
        assert (record.folder / "checkpoints" / "best" / "adapter.json").exists()
        assert record.sigma_r == SCALE.sigma


def test_a_trials_value_is_its_best_checkpoint_within_the_limit(tmp_path: Path) -> None:
    spec = small_spec(budget={"trials": 1}, objective={"kl_limit": 0.4}, search={"beta": 0.001})
    search(tmp_path, spec, FakeBank(1))
    outcome = ended(tmp_path)[0]
    # kl is 0.248 at step 5 and 0.495 at step 10, beyond the limit; noise of the prompts aside
    assert outcome.best_step == 5
    assert outcome.is_feasible
    assert outcome.value == pytest.approx(gold_at(0.2475), abs=0.05)


def test_the_order_of_events_is_that_of_the_loop(tmp_path: Path) -> None:
    watcher = Watcher()
    spec = small_spec(budget={"trials": 1}, trainer={"steps": 3}, evaluate={"every": 2})
    search(tmp_path, spec, FakeBank(1, steps=3), observers=[watcher])
    assert watcher.events == [
        *["0 admitted at 0", "0 evaluated 0", "0 stepped 1", "0 stepped 2", "0 evaluated 2"],
        *["0 stepped 3", "0 evaluated 3", "0 ended done"],
    ]


def test_a_freed_slot_is_refilled_before_the_next_step(tmp_path: Path) -> None:
    spec = small_spec(
        budget={"trials": 6},
        search={"beta": {"log": [0.001, 0.5]}},
        guards={"kl": {"limit": 0.3, "patience": 1}},
    )
    bank = FakeBank(2)
    search(tmp_path, spec, bank)
    assert len(set(bank.steps_done.values())) > 2
    assert bank.occupancy == sorted(bank.occupancy, reverse=True)
    assert bank.occupancy[0] == 2


def test_the_kl_guard_ends_a_trial_with_a_last_evaluation(tmp_path: Path) -> None:
    spec = small_spec(
        budget={"trials": 1}, search={"beta": 0.001}, guards={"kl": {"limit": 0.3, "patience": 2}}
    )
    search(tmp_path, spec, FakeBank(1))
    outcome = ended(tmp_path)[0]
    assert outcome.verdict.reason is StopReason.KL_LIMIT
    assert outcome.verdict.detail == "kl 0.396 > 0.3 nats/token for 2 steps (steps 8-9)"
    (record,) = read_trials(tmp_path)
    assert [row["step"] for row in record.evals] == [0, 5, 9]
    assert record.events[-1]["detail"] == outcome.verdict.detail


def test_a_trial_that_diverges_keeps_its_best_healthy_checkpoint(tmp_path: Path) -> None:
    spec = small_spec(budget={"trials": 3}, search={"beta": 0.001})  # field cases B7 and B8
    bank = FakeBank(1)
    bank.nan_at = {1: 8}
    search(tmp_path, spec, bank)
    outcomes = ended(tmp_path)
    assert [o.verdict.reason for o in outcomes.values()] == ["done", "diverged", "done"]
    assert outcomes[1].verdict.detail.startswith("not finite at step 8: kl/exact_token = nan")
    assert (outcomes[1].best_step, outcomes[1].is_feasible) == (5, True)
    states = [t.state for t in optuna_trials(tmp_path, spec)]
    assert states == [TrialState.COMPLETE] * 3
    assert [row["step"] for row in read_trials(tmp_path)[1].evals] == [0, 5]


def test_a_trial_that_diverges_before_its_first_checkpoint_is_infeasible(tmp_path: Path) -> None:
    spec = small_spec(budget={"trials": 2}, search={"beta": 0.001})
    bank = FakeBank(1)
    bank.nan_at = {0: 2}
    search(tmp_path, spec, bank)
    trial = optuna_trials(tmp_path, spec)[0]
    assert trial.value is not None
    assert math.isfinite(trial.value)
    assert trial.constraints["kl"] == pytest.approx(1 - 2 / 20)
    best = ledger_of(tmp_path, spec).best()
    assert best is not None
    assert best.trial_number == 1


def test_the_wall_clock_of_a_trial_ends_it(tmp_path: Path) -> None:
    now = [0.0]

    def on_step(number: int, step: int) -> None:
        now[0] += 1.0

    spec = small_spec(budget={"trials": 1}, guards={"wall": 6.5})
    end = search(tmp_path, spec, FakeBank(1, on_step=on_step), clock=lambda: now[0])
    outcome = ended(tmp_path)[0]
    assert outcome.verdict.reason is StopReason.WALL_CLOCK
    assert outcome.steps_run == 7
    assert outcome.is_feasible
    assert (end.wall_s, end.trainer_s) == (7.0, 7.0)


def slow_start(spec: TrialSpec, step: int) -> float:
    """The lower beta, the faster gold rises and the deeper it falls."""
    return gold_at(kl_at(spec, step, 20))


def test_a_beaten_trial_is_pruned_and_a_slow_one_is_not(tmp_path: Path) -> None:
    betas = {"choice": [0.001, 0.004, 0.01, 0.3]}
    spec = small_spec(
        budget={"trials": 12},
        search={"beta": betas},
        sampler={"name": "random"},
        pruning={"peers": 3, "warmup": 0.4},
    )
    search(tmp_path, spec, FakeBank(4, gold_of=slow_start))
    records = {r.number: r for r in read_trials(tmp_path)}
    pruned = [r for r in records.values() if outcome_of(r).verdict.reason is StopReason.PRUNED]
    slow = [r for r in records.values() if r.setting.beta == 0.3]
    assert slow
    assert pruned
    assert all(outcome_of(r).verdict.reason is StopReason.DONE for r in slow)
    assert all(outcome_of(r).steps_run >= 8 for r in pruned)
    assert all("the median of" in outcome_of(r).verdict.detail for r in pruned)
    by_number = {t.user_attrs["kltune.trial_number"]: t for t in optuna_trials(tmp_path, spec)}
    for record in pruned:
        trial = by_number[record.number]
        assert trial.state is TrialState.PRUNED
        assert trial.constraints
        assert outcome_of(record).value is None


def outcome_of(record: TrialRecord) -> TrialOutcome:
    assert record.outcome is not None
    return record.outcome


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


def stop_after(calls: int) -> Callable[[], str | None]:
    left = [calls]

    def should_stop() -> str | None:
        left[0] -= 1
        return "stopped by a signal (SIGTERM)" if left[0] < 0 else None

    return should_stop


def test_a_stop_request_checkpoints_the_running_trials_and_loses_nothing(tmp_path: Path) -> None:
    spec = small_spec(budget={"trials": 4}, guards={"kl": {"limit": 0.9, "patience": 3}})
    watcher = Watcher()
    end = search(tmp_path, spec, should_stop=stop_after(33), observers=[watcher])
    assert end.reason == "stopped by a signal (SIGTERM)"
    assert end.trials_ended == 2
    assert [o.verdict.detail for o in watcher.outcomes[-2:]] == [end.reason] * 2
    states = [t.state for t in optuna_trials(tmp_path, spec)]
    assert states == [TrialState.COMPLETE] * 2 + [TrialState.FAIL] * 2
    stopped_at = watcher.outcomes[-1].steps_run
    assert stopped_at % spec.evaluate.every != 0  # not where a checkpoint was written anyway
    bank = FakeBank(2)
    end = search(tmp_path, spec, bank)
    assert end.trials_ended == 2
    assert bank.steps_done == {2: 20 - stopped_at, 3: 20 - stopped_at}
    assert [number for number, _ in bank.admissions] == [2, 3]
    assert all(checkpoint is not None for _, checkpoint in bank.admissions)


def test_an_interrupted_and_resumed_trial_ends_exactly_as_an_undisturbed_one(
    tmp_path: Path,
) -> None:
    spec = small_spec(
        budget={"trials": 2}, search={"beta": 0.001}, guards={"kl": {"limit": 0.5, "patience": 4}}
    )
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    search(tmp_path / "a", spec)
    for calls in (2, 9, 2, 1, 99):  # in the middle of the guard's patience, too
        search(tmp_path / "b", spec, should_stop=stop_after(calls))
    for one, other in zip(read_trials(tmp_path / "a"), read_trials(tmp_path / "b"), strict=True):
        assert other.attempt > 1
        for name in ("steps", "evals"):
            rows, others = ([*map(plain, getattr(r, name))] for r in (one, other))
            assert rows == others
        assert outcome_of(one).verdict == outcome_of(other).verdict
        assert outcome_of(one).value == outcome_of(other).value
    reported = [t.intermediate_values for t in optuna_trials(tmp_path / "b", spec)][-2:]
    assert reported == [t.intermediate_values for t in optuna_trials(tmp_path / "a", spec)]


def plain(row: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in row.items() if key not in ("time", "attempt")}


def test_a_trial_whose_process_died_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    spec = small_spec(budget={"trials": 1})
    ledger = ledger_of(tmp_path, spec)
    asked = ledger.ask()  # and the process dies after step 5
    assert asked is not None
    bank = FakeBank(1)
    bank.admit(0, 0, asked.setting, None)
    for _ in range(5):
        bank.train_step()
    bank.save_checkpoint(0, tmp_path / "trials/00000/checkpoints/last")
    again = FakeBank(1)
    search(tmp_path, spec, again)
    assert again.steps_done == {0: 15}
    assert [t.state for t in optuna_trials(tmp_path, spec)] == [
        TrialState.FAIL,
        TrialState.COMPLETE,
    ]


def test_eight_trials_after_six_runs_exactly_two_more(tmp_path: Path) -> None:
    spec = small_spec(budget={"trials": 3})
    search(tmp_path, spec)
    bank = FakeBank(2)
    search(tmp_path, small_spec(budget={"trials": 5}), bank)
    assert [number for number, _ in bank.admissions] == [3, 4]
    assert search(tmp_path, small_spec(budget={"trials": 5})).trials_ended == 0


def test_a_trial_failed_from_outside_frees_its_slot(tmp_path: Path) -> None:  # field case B5
    spec = small_spec(budget={"trials": 2})

    def on_step(number: int, step: int) -> None:
        if number == 0 and step == 7:
            study = optuna.load_study(
                study_name="small", storage=f"sqlite:///{tmp_path / 'study.db'}"
            )
            study.tell(0, state=TrialState.FAIL)

    bank = FakeBank(1, on_step=on_step)
    end = search(tmp_path, spec, bank)
    assert end.trials_ended == 2
    assert bank.steps_done == {0: 10, 1: 20}
    assert ended(tmp_path)[0].verdict.detail == (
        "ended from outside, in Optuna's storage, by step 10"
    )


def test_no_feasible_trial_is_a_normal_end(tmp_path: Path) -> None:
    spec = small_spec(budget={"trials": 2}, objective={"kl_limit": 0.01}, **FIXED_BETA)
    assert search(tmp_path, spec).reason is None
    assert ledger_of(tmp_path, spec).best() is None
    assert all(t.constraints["kl"] > 0 for t in optuna_trials(tmp_path, spec))


def test_a_gold_that_is_never_finite_ends_as_an_error_not_as_a_value(tmp_path: Path) -> None:
    spec = small_spec(budget={"trials": 1, "retries": 0})
    search(tmp_path, spec, FakeBank(1, gold_of=lambda setting, step: math.nan))
    outcome = ended(tmp_path)[0]
    assert outcome.verdict.reason is StopReason.ERROR
    assert "no evaluation of it is finite" in outcome.verdict.detail
    assert optuna_trials(tmp_path, spec)[0].state is TrialState.FAIL
