"""A bank that works ahead of the loop: the search is the same, and nothing that was done is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from kltune.study.ledger import Ledger
from kltune.study.loop import run_search
from kltune.study.storage import open_study
from kltune.trial.record import read_trials
from tests.fake_bank import FakeBank, small_spec
from tests.hasty_bank import HastyBank


def curves(path: Path) -> list[list[tuple[object, ...]]]:
    return [
        [(row["step"], row["kl/exact_token"]) for row in record.steps]
        + [(row["step"], row["eval/gold"]) for row in record.evals]
        for record in read_trials(path)
    ]


@pytest.mark.parametrize("limit", [None, 0.3])
def test_a_search_with_a_bank_that_works_ahead_is_that_step_by_step(
    tmp_path: Path, limit: float | None
) -> None:
    guards = {} if limit is None else {"guards": {"kl": {"limit": limit, "patience": 2}}}
    spec = small_spec(budget={"trials": 6}, **guards)
    for name, bank in (("plain", FakeBank(2)), ("hasty", HastyBank(2))):
        (tmp_path / name).mkdir()
        run_search(bank, Ledger(open_study(tmp_path / name, spec)))
    assert curves(tmp_path / "hasty") == curves(tmp_path / "plain")
    ends = [
        [(r.outcome.verdict, r.outcome.value) for r in read_trials(tmp_path / name) if r.outcome]
        for name in ("plain", "hasty")
    ]
    assert ends[0] == ends[1]
    assert any(v.reason.value == "kl_limit" for v, _ in ends[0]) is (limit is not None)


def test_what_was_done_ahead_is_recorded_before_a_stop_saves_it(tmp_path: Path) -> None:
    spec = small_spec(budget={"trials": 2})
    bank = HastyBank(2)
    asked = iter([None] * 7 + ["stop"] * 9)
    end = run_search(bank, Ledger(open_study(tmp_path, spec)), should_stop=lambda: next(asked))
    assert end.reason == "stop"
    for record in read_trials(tmp_path):
        steps = [row["step"] for row in record.steps]
        assert steps == list(range(1, len(steps) + 1))
        assert record.outcome is not None
        assert record.outcome.steps_run == len(steps) == bank.steps_done[record.number]


def test_where_the_clock_may_end_a_trial_nothing_is_foreseen(tmp_path: Path) -> None:
    spec = small_spec(budget={"trials": 1}, guards={"wall": 1000})
    bank = FakeBank(1)
    run_search(bank, Ledger(open_study(tmp_path, spec)))
    assert not any(bank.foreseen)
