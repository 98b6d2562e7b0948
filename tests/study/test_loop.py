from __future__ import annotations

import math
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from kltune.spec.trial import TrialSpec
from kltune.study.loop import run_search
from kltune.trial.folder import TrialFolder
from kltune.trial.outcome import StopReason
from kltune.trial.record import read_trials
from tests.fake_bank import FakeBank, gold_at, kl_at, small_spec
from tests.small_search import (
    FIXED_BETA,
    SCALE,
    Watcher,
    ended,
    ledger_of,
    optuna_trials,
    outcome_of,
    search,
    stop_after,
)


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
        assert not (record.folder / "checkpoints" / "last").exists()  # it is not to go on
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
        objective={"metric": "gold_final"},  # under gold_peak a peak that is behind still counts
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
        (metrics,) = bank.train_step()
        TrialFolder(tmp_path, 0, 1).append_step(metrics)
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


def test_time_with_nothing_to_run_is_counted_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KLTUNE_LEASE", "1")
    ledger = ledger_of(tmp_path, small_spec(budget={"trials": 1}))
    looks = iter([False, False, True])  # trials of other members run meanwhile
    monkeypatch.setattr(ledger, "is_settled", lambda: next(looks))
    end = run_search(FakeBank(1), ledger)
    assert 0.5 <= end.waiting_s < end.wall_s
    assert end.bookkeeping_s == pytest.approx(end.wall_s - end.waiting_s - end.trainer_s)
