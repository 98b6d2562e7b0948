"""Guards in the search: stops end a trial, warnings are told once, and neither depends on how it was run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_search import Watcher, ended, optuna_trials, search, stop_after

from kltune.guard.alarm import Action
from kltune.metrics.jsonl import read_rows
from kltune.metrics.record import EvalMetrics, StepMetrics, TokenProfile
from kltune.spec.study import StudySpec
from kltune.spec.trial import TrialSpec
from kltune.trial.outcome import StopReason, TrialState
from kltune.trial.record import read_trials
from tests.fake_bank import FakeBank, small_spec
from tests.hasty_bank import HastyBank

QUICK = {"warmup": 0, "patience": 2, "window": 2}
WARNING = {"action": "warn", **QUICK}
CUT = {"share": 0.5, "rise": 0.2}
DROP = {"gold_drop": {"action": "stop", "patience": 1, "kl_factor": 1.5}}
"""Gold of the fake bank peaks at step 5 and falls."""


def spec_of(trials: int = 1, /, **guards: Any) -> StudySpec:
    return small_spec(budget={"trials": trials}, search={"beta": 0.001}, guards=guards)


def cut_from(start: int) -> Callable[[TrialSpec, int], Mapping[str, float]]:
    """Most completions are cut from step ``start`` on, and each repeats itself from 4 steps later."""

    def values(spec: TrialSpec, step: int) -> dict[str, float]:
        return {
            "tokens/truncated_frac": 0.8 if step >= start else 0.1,
            "tokens/repeated_frac": 0.6 if step >= start + 4 else 0.0,
        }

    return values


def warnings_in(path: Path) -> list[dict[str, Any]]:
    return [row for row in read_rows(path / "events.jsonl") if row["event"] == "warning"]


def test_a_guard_that_judges_evaluations_ends_its_trial_right_there(tmp_path: Path) -> None:
    watcher = Watcher()
    search(tmp_path, spec_of(**DROP), FakeBank(1), observers=[watcher])
    outcome = ended(tmp_path)[0]
    assert outcome.verdict.reason is StopReason.GOLD_DROP
    assert (outcome.steps_run, outcome.best_step, outcome.is_feasible) == (10, 5, True)
    (record,) = read_trials(tmp_path)
    assert [row["step"] for row in record.evals] == [0, 5, 10]
    assert record.events[-1]["detail"] == outcome.verdict.detail
    assert watcher.events[-2:] == ["0 evaluated 10", "0 ended gold_drop"]
    (trial,) = optuna_trials(tmp_path, spec_of(**DROP))
    assert trial.user_attrs["kltune.state"] == "complete"
    assert trial.value == outcome.value


def test_a_guard_that_only_warns_lets_the_trial_run_its_course(tmp_path: Path) -> None:
    spec = spec_of(truncation={**WARNING, **CUT}, repetition=WARNING)
    watcher = Watcher()
    search(tmp_path, spec, FakeBank(1, values_of=cut_from(7)), observers=[watcher])
    assert ended(tmp_path)[0].verdict.reason is StopReason.DONE
    told = [(number, a.verdict.reason, a.step) for number, a in watcher.alarms]
    assert told == [(0, StopReason.TRUNCATION, 15), (0, StopReason.REPETITION, 20)]
    assert {alarm.action for _, alarm in watcher.alarms} == {Action.WARN}
    (record,) = read_trials(tmp_path)
    assert [(w.guard, w.step) for w in record.warnings] == [("truncation", 15), ("repetition", 20)]
    first = watcher.alarms[0][1]
    assert record.warnings[0].detail == first.verdict.detail
    assert record.warnings[0].first_step == first.first_step < 15
    assert watcher.events.index("0 warned truncation") > watcher.events.index("0 evaluated 15")


def test_a_guard_warns_once_however_long_it_sees_the_same(tmp_path: Path) -> None:
    spec = spec_of(truncation={**WARNING, "patience": 1, **CUT})
    search(tmp_path, spec, FakeBank(1, values_of=cut_from(3)))
    assert [w["step"] for w in warnings_in(tmp_path / "trials/00000")] == [5]


def test_a_warning_changes_nothing_of_what_is_trained(tmp_path: Path) -> None:
    for name, action in (("off", "off"), ("warn", "warn")):
        (tmp_path / name).mkdir()
        guard = {**WARNING, "action": action, **CUT}
        search(tmp_path / name, spec_of(2, truncation=guard), FakeBank(2, values_of=cut_from(3)))
        assert bool(warnings_in(tmp_path / name / "trials/00000")) is (action == "warn")
    for one, other in zip(*(read_trials(tmp_path / n) for n in ("off", "warn")), strict=True):
        assert [plain(row) for row in one.steps] == [plain(row) for row in other.steps]
        assert [plain(row) for row in one.evals] == [plain(row) for row in other.evals]
        assert one.outcome == other.outcome


def plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in ("time", "attempt")}


@pytest.mark.parametrize("calls", [3, 9, 12])
def test_an_interrupted_trial_is_stopped_and_warned_of_as_an_undisturbed_one(
    tmp_path: Path, calls: int
) -> None:
    guards = {
        "truncation": {**WARNING, **CUT},
        "repetition": {**QUICK, "action": "stop"},
        "local_kl": {
            "action": "warn",
            **QUICK,
            "bucket_token": 0.1,
            "p99_token": 0.2,
            "ratio": 1.1,
        },
    }
    ends, told = [], []
    for name, stops in (("a", []), ("b", [calls, 2, 1])):
        path = tmp_path / name
        path.mkdir()
        for stop in stops:
            search(path, spec_of(**guards), Profiled(1), should_stop=stop_after(stop))
        search(path, spec_of(**guards), Profiled(1))
        (record,) = read_trials(path)
        assert record.outcome is not None
        ends.append((record.outcome.verdict, record.outcome.value, record.outcome.steps_run))
        told.append(record.warnings)
        assert len(warnings_in(path / "trials/00000")) == len(record.warnings), "said again"
    assert ends[0] == ends[1]
    assert ends[0][0].reason is StopReason.REPETITION
    assert told[0] == told[1]
    assert {w.guard for w in told[0]} == {"truncation", "local_kl"}


class Profiled(FakeBank):
    """Cut from step 3 on, repeating from step 12 on; its KL lies at one place."""

    def __init__(self, num_slots: int) -> None:
        super().__init__(num_slots, values_of=self._values)

    @staticmethod
    def _values(spec: TrialSpec, step: int) -> dict[str, float]:
        return {
            **cut_from(3)(spec, step),
            "tokens/repeated_frac": 0.6 if step >= 12 else 0.0,
            "kl/exact_p99_token": 0.0,
        }

    def _train(self, slot: int, held: Any) -> StepMetrics:
        metrics = super()._train(slot, held)
        kl = (metrics.kl_token * 3.00001, metrics.kl_token / 9)
        return replace(metrics, profile=TokenProfile((0, 1, 10), kl, (8, 72)))


class Crashing(Watcher):
    """Takes the process down right after the evaluation of step 10 is saved."""

    def evaluated(self, metrics: EvalMetrics) -> None:
        if metrics.step == 10:
            raise KeyboardInterrupt


@pytest.mark.parametrize("guards", [{"kl": {"limit": 0.42, "patience": 1}}, DROP])
def test_a_stop_whose_record_a_crash_prevented_is_made_when_the_trial_goes_on(
    tmp_path: Path, guards: dict[str, Any]
) -> None:
    spec = spec_of(**guards)
    with pytest.raises(KeyboardInterrupt):
        search(tmp_path, spec, FakeBank(1), observers=[Crashing()])
    assert ended(tmp_path)[0].verdict.reason is StopReason.INTERRUPTED
    bank = FakeBank(1)
    search(tmp_path, spec, bank)
    outcome = ended(tmp_path)[0]
    assert outcome.verdict.reason in (StopReason.KL_LIMIT, StopReason.GOLD_DROP)
    assert outcome.steps_run == 10
    assert bank.steps_done == {}


@pytest.mark.parametrize(
    "guards",
    [
        {"kl": {"limit": 0.3, "patience": 2}},
        {"kl": {"limit": 0.3, "patience": 2, "action": "warn"}},
        {"kl": {"limit": 0.3, "patience": 2, "over": "evaluations"}},
        {"jump": {"action": "stop", "rise_token": 0.3, "factor": 2, "window": 2}},
        {"negative_kl": "stop"},
        {"negative_kl": "warn"},
        {"repetition": {**QUICK, "action": "stop"}, "truncation": {**WARNING, **CUT}},
        DROP,
    ],
)
def test_a_bank_that_works_ahead_is_stopped_and_warned_of_at_the_same_steps(
    tmp_path: Path, guards: dict[str, Any]
) -> None:
    seen = []
    for name, kind in (("plain", Strange), ("hasty", HastyStrange)):
        path, watcher = tmp_path / name, Watcher()
        path.mkdir()
        bank = kind(2)
        search(path, spec_of(2, **guards), bank, observers=[watcher])
        records = read_trials(path)
        seen.append(
            (
                [(r.outcome and (r.outcome.verdict, r.outcome.steps_run)) for r in records],
                [r.warnings for r in records],
                [[plain(row) for row in (*r.steps, *r.evals)] for r in records],
                bank.steps_done,
            )
        )
        assert len(watcher.alarms) == sum(len(r.warnings) for r in records)
    assert seen[0] == seen[1]
    said = any(warnings for warnings in seen[0][1])
    stopped = any(end and end[0].reason is not StopReason.DONE for end in seen[0][0])
    assert said or stopped


def strange(spec: TrialSpec, step: int) -> dict[str, float]:
    negative = -2.0 if step in (12, 13, 14) else 0.01
    k1 = {"kl/k1_seq": negative, "kl/k1_seq_se": 0.02, "kl/k1_token": negative / 10}
    return {**cut_from(7)(spec, step), **k1}


def jumpy(metrics: StepMetrics) -> StepMetrics:
    return replace(metrics, kl_token=metrics.kl_token + (0.9 if metrics.step >= 8 else 0.0))


class Strange(FakeBank):
    def __init__(self, num_slots: int) -> None:
        super().__init__(num_slots, values_of=strange)

    def _train(self, slot: int, held: Any) -> StepMetrics:
        return jumpy(super()._train(slot, held))


class HastyStrange(HastyBank):
    def __init__(self, num_slots: int) -> None:
        super().__init__(num_slots)
        self._values_of = strange

    def _train(self, slot: int, held: Any) -> StepMetrics:
        return jumpy(super()._train(slot, held))


def test_a_faulty_set_up_fails_the_trial_and_is_not_tried_again(tmp_path: Path) -> None:
    bank = FakeBank(1, values_of=strange)
    spec = spec_of(1, negative_kl="stop")
    search(tmp_path, spec, bank)
    (record,) = read_trials(tmp_path)
    assert record.outcome is not None
    assert record.outcome.verdict.reason is StopReason.NEGATIVE_KL
    assert record.outcome.steps_run == 13
    assert (record.attempt, record.outcome.value) == (1, None)
    assert record.events[-1]["state"] == TrialState.FAILED
    assert bank.steps_done == {0: 13}


def test_a_stop_wins_over_the_end_and_over_peers(tmp_path: Path) -> None:
    guard = {**QUICK, "action": "stop", **CUT}
    search(tmp_path, spec_of(truncation=guard), FakeBank(1, values_of=cut_from(13)))
    outcome = ended(tmp_path)[0]
    assert (outcome.verdict.reason, outcome.steps_run) == (StopReason.TRUNCATION, 20)
