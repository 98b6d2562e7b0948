"""A search with two golds: one is the objective, the other must not be lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from kltune.metrics.jsonl import read_rows
from kltune.spec.study import StudySpec
from kltune.spec.trial import TrialSpec
from kltune.study.ledger import Ledger
from kltune.study.loop import run_search
from kltune.study.space import PlannedTrial
from kltune.study.storage import open_study
from kltune.trial.record import read_trials
from tests.fake_bank import FakeBank, small_spec
from tests.small_search import ended, ledger_of, optuna_trials, search, stop_after

GREEDY, MILD = 0.002, 0.5
"""Betas: one that gold alone would choose, one that keeps what must not be lost."""


def spec_of(also: dict[str, object], **changes: object) -> StudySpec:
    return small_spec(
        task={"builtin": "kitchen", "golds": ["retention"]},
        objective={"also": {"retention": also}},
        **{"budget": {"trials": 2}, "search": {"beta": {"log": [0.001, 1.0]}}, **changes},
    )


def gold_of(spec: TrialSpec, step: int) -> float:
    """Rises with the steps, faster with less beta."""
    return step / 20 * (1.0 if spec.beta == GREEDY else 0.5)


def retention_of(spec: TrialSpec, step: int) -> dict[str, float]:
    """Falls at once with little beta, and late with more."""
    if step == 0:
        return {"retention": 0.9}
    if spec.beta == GREEDY:
        return {"retention": 0.5}
    return {"retention": 0.88 if step <= 10 else 0.6}


def two_trials(path: Path, spec: StudySpec, **how: object) -> Ledger:
    path.mkdir(exist_ok=True)
    setting = {"penalty": "k2-loss", "learning_rate": 1e-3}
    fixed = [
        PlannedTrial(f"baseline:{name}", TrialSpec.model_validate({**setting, "beta": beta}))
        for name, beta in (("greedy", GREEDY), ("mild", MILD))
    ]
    ledger = Ledger(open_study(path, spec), fixed)
    bank = FakeBank(1, gold_of=gold_of, others_of=retention_of)
    run_search(bank, ledger, 0.5, **how)  # type: ignore[arg-type]
    return ledger


def test_the_winner_is_the_one_that_keeps_the_other_gold(tmp_path: Path) -> None:
    observed, limited = tmp_path / "a", tmp_path / "b"
    best = two_trials(observed, spec_of({})).best()
    assert best is not None
    assert best.setting.beta == GREEDY
    best = two_trials(limited, spec_of({"max_drop": 0.1})).best()
    assert best is not None
    assert best.setting.beta == MILD
    greedy, mild = (ended(limited)[n] for n in (0, 1))
    assert not greedy.is_feasible
    assert greedy.constraint == pytest.approx(3.0)  # 0.4 lost where 0.1 is allowed
    assert (mild.is_feasible, mild.best_step) == (True, 10)
    assert ended(observed)[1].best_step == 20


def test_optuna_is_told_the_constraint(tmp_path: Path) -> None:
    spec = spec_of({"max_drop": 0.1})
    two_trials(tmp_path, spec)
    told = [t.constraints for t in optuna_trials(tmp_path, spec)]
    assert [max(c.values()) > 0 for c in told] == [True, False]


def test_the_best_adapter_is_that_of_an_allowed_checkpoint(tmp_path: Path) -> None:
    two_trials(tmp_path, spec_of({"max_drop": 0.1}))
    records = read_trials(tmp_path)
    assert not (records[0].folder / "checkpoints" / "best").exists()
    saved = (records[1].folder / "checkpoints" / "best" / "adapter.json").read_text()
    assert saved == '{"step": 10}'


def test_the_record_holds_every_gold_by_prompt_and_sample(tmp_path: Path) -> None:
    two_trials(tmp_path, spec_of({}))
    folder = read_trials(tmp_path)[1].folder
    row = read_rows(folder / "evals.jsonl")[-1]
    assert row["golds_by_prompt"]["retention"] == [0.6] * 16
    assert row["eval/gold_retention"] == 0.6
    assert read_rows(folder / "samples.jsonl")[-1]["golds"] == {"retention": 0.6}


def test_a_search_that_goes_on_judges_by_what_it_had_recorded(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    spec = spec_of({"max_drop": 0.1})
    two_trials(whole, spec)
    end_early = stop_after(37)
    two_trials(cut, spec, should_stop=end_early)  # within the second trial, after its peak
    assert (ended(cut)[1].value, ended(cut)[1].steps_run > 10) == (None, True)
    two_trials(cut, spec)
    record = read_trials(cut)[1]
    assert record.attempt == 2
    assert [row["golds_by_prompt"]["retention"][0] for row in record.evals] == pytest.approx(
        [0.9, 0.88, 0.88, 0.6, 0.6]
    )
    for number in (0, 1):
        one, other = ended(whole)[number], ended(cut)[number]
        assert (one.value, one.best_step, one.constraint) == (
            other.value,
            other.best_step,
            other.constraint,
        )


def test_peers_are_not_pruned_against_what_may_not_be_chosen(tmp_path: Path) -> None:
    pruning = {"enabled": True, "warmup": 0.4, "peers": 1}
    search = {"beta": {"choice": [GREEDY, MILD]}, "penalty": "k2-loss", "controller": "fixed"}
    shared = {"pruning": pruning, "search": search, "budget": {"trials": 8}}
    # Less KL with more gold: what peers with more KL and less gold are pruned against.
    for also, is_pruned in (({}, True), ({"max_drop": 0.1}, False)):
        path = tmp_path / str(is_pruned)
        path.mkdir()
        spec = spec_of(also, **shared)
        bank = FakeBank(2, gold_of=_mild_is_better, others_of=_mild_forgets)
        run_search(bank, ledger_of(path, spec), 0.5)
        honest = [r for r in read_trials(path) if r.setting.beta == GREEDY]
        assert 0 < len(honest) < 8
        reasons = {record.outcome.verdict.reason.value for record in honest if record.outcome}
        assert ("pruned" in reasons) == is_pruned


def _mild_is_better(spec: TrialSpec, step: int) -> float:
    return step / 20 * (1.0 if spec.beta == MILD else 0.5)


def _mild_forgets(spec: TrialSpec, step: int) -> dict[str, float]:
    return {"retention": 0.5 if step and spec.beta == MILD else 0.9}


def test_a_study_of_before_is_gone_on_with(tmp_path: Path) -> None:
    spec = small_spec(budget={"trials": 1})
    opened = open_study(tmp_path, spec)
    old = dict(opened.optuna_study.user_attrs["kltune.spec"])
    del old["task"]["golds"], old["objective"]["also"]  # as a version without them kept it
    opened.optuna_study.set_user_attr("kltune.spec", old)
    opened.close()
    assert search(tmp_path, spec, FakeBank(1)).trials_ended == 1
