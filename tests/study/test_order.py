"""What an ask leaves in the storage when its commit is uncertain, or its process dies in it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from optuna.trial import TrialState
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from kltune.study.ledger import Ledger
from kltune.study.lives import ATTR_LEASE, lives_of
from kltune.trial.outcome import StopReason
from tests.fake_bank import small_spec
from tests.small_search import ledger_of
from tests.study.test_ledger import outcome_of


def run(ledger: Ledger) -> list[tuple[int, int]]:
    done: list[tuple[int, int]] = []
    while (asked := ledger.ask()) is not None:
        ledger.tell(asked, outcome_of(asked, StopReason.DONE))
        done.append((asked.trial_number, asked.attempt))
    return done


def lose_answers(ledger: Ledger, how_often: int) -> None:
    """Each of the next commits reaches the database, and its answer is lost on the way back."""
    left = [how_often]

    def after_commit(_session: object) -> None:
        if left[0] > 0:
            left[0] -= 1
            raise OperationalError("COMMIT", {}, sqlite3.OperationalError("database is locked"))

    event.listen(ledger.opened.storage.scoped_session.session_factory, "after_commit", after_commit)


@pytest.mark.parametrize("times", [1, 2])
def test_an_ask_whose_answer_was_lost_takes_one_trial_number(tmp_path: Path, times: int) -> None:
    ledger = ledger_of(tmp_path, small_spec(budget={"trials": 3}))
    add = ledger.opened.optuna_study.add_trial

    def add_and_lose(trial: object) -> None:
        lose_answers(ledger, times)
        add(trial)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger.opened.optuna_study, "add_trial", add_and_lose)
        asked = ledger.ask()
    assert asked is not None
    trials = ledger.opened.optuna_study.get_trials()
    assert len(trials) == 1 + times  # the same one, made again
    assert [t.state for t in trials] == [TrialState.RUNNING] + [TrialState.FAIL] * times
    assert len(lives_of(trials)) == 1
    ledger.tell(asked, outcome_of(asked, StopReason.DONE))
    assert run(ledger) == [(1, 1), (2, 1)]


def test_a_process_that_dies_in_its_ask_leaves_nothing_or_a_trial_that_goes_on(
    tmp_path: Path,
) -> None:
    spec = small_spec(budget={"trials": 2})
    ledger = ledger_of(tmp_path, spec)
    seen: list[set[str]] = []

    def die_later(trial: object) -> None:
        add(trial)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    add = ledger.opened.optuna_study.add_trial
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger.opened.optuna_study, "add_trial", die_later)
        with pytest.raises(KeyboardInterrupt):
            ledger.ask()
    (made,) = ledger.opened.optuna_study.get_trials()
    seen.append(set(made.user_attrs))
    assert {"kltune.setting", "kltune.origin", "kltune.trial_number", ATTR_LEASE} <= seen[0]
    following = ledger_of(tmp_path, spec)
    assert following.recover() == 1
    assert run(following) == [(0, 2), (1, 1)]


def test_what_an_older_kltune_had_enqueued_and_not_begun_is_run(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, small_spec(budget={"trials": 3}))
    asked = ledger.ask()
    assert asked is not None
    ledger.tell(asked, outcome_of(asked, StopReason.INTERRUPTED))
    (first,) = ledger.opened.optuna_study.get_trials()
    kept = {k: first.user_attrs[k] for k in ("kltune.origin", "kltune.setting")}
    ledger.opened.optuna_study.enqueue_trial(first.params, {**kept, "kltune.retry_of": 0})
    again = ledger.ask()
    assert again is not None
    assert (again.trial_number, again.attempt, again.setting) == (0, 2, asked.setting)
    assert again.origin == asked.origin


def test_a_trial_that_took_its_workers_too_often_comes_after_all_others(tmp_path: Path) -> None:
    spec = small_spec(budget={"trials": 3, "retries": 0})
    ledger = ledger_of(tmp_path, spec)
    for _ in range(3):
        asked = ledger.ask()
        assert asked is not None
        verdict = ledger.judge_lost(asked, "signal 9", is_alone=True)
        may_retry = verdict.reason is StopReason.INTERRUPTED
        ledger.tell(asked, outcome_of(asked, verdict.reason), may_retry=may_retry)
    following = ledger_of(tmp_path, spec)
    following.recover()
    assert run(following) == [(1, 1), (2, 1), (0, 4)]
