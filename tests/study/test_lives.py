from __future__ import annotations

from typing import Any

import optuna
from optuna.trial import TrialState, create_trial

from kltune.study.lives import (
    ATTR_ASK,
    ATTR_LOST,
    ATTR_LOST_AT,
    ATTR_LOST_BESIDE,
    ATTR_MAY_RETRY,
    ATTR_REASON,
    ATTR_RETRY_OF,
    is_hopeless,
    is_interrupted,
    lives_of,
    needs_another,
    times_lost,
)


def attempt(number: int, reason: str | None, retry_of: int | None = None, **attrs: object):
    given: dict[str, object] = dict(attrs)
    if reason is not None:
        given[ATTR_REASON] = reason
    if retry_of is not None:
        given[ATTR_RETRY_OF] = retry_of
    is_failed = reason in (None, "error", "interrupted")
    trial = create_trial(
        state=TrialState.FAIL if is_failed else TrialState.COMPLETE,
        value=None if is_failed else 1.0,
        user_attrs=given,
    )
    trial.number = number
    return trial


def test_attempts_are_grouped_by_their_first_in_the_order_of_firsts() -> None:
    trials = [attempt(0, "error"), attempt(1, "done"), attempt(2, "done", 0), attempt(3, "done")]
    assert [[t.number for t in life] for life in lives_of(trials[::-1])] == [[0, 2], [1], [3]]


def test_errors_are_retried_within_the_bound_and_interruptions_without_one() -> None:
    life = [attempt(5, "error"), attempt(6, "interrupted", 5), attempt(7, "error", 5)]
    assert needs_another(life, num_before=0, retries=2)
    assert not needs_another(life, num_before=0, retries=1)
    interrupted = [*life, attempt(8, "interrupted", 5)]
    assert needs_another(interrupted, num_before=0, retries=0)


def test_attempts_that_were_lost_alone_are_counted_over_all_sessions() -> None:
    lost = {ATTR_LOST: True}
    life = [
        attempt(0, "interrupted", **lost),
        attempt(1, "interrupted", 0),
        attempt(2, "error", 0, **lost),
    ]
    assert times_lost(life) == 2


def test_a_trial_that_got_further_before_its_worker_died_starts_a_new_count() -> None:
    def lost(number: int, step: int) -> dict[str, object]:
        return {ATTR_LOST: True, ATTR_LOST_AT: step}

    life = [
        attempt(n, "interrupted", 0 if n else None, **lost(n, s)) for n, s in enumerate((5, 5, 9))
    ]
    assert times_lost(life) == 1
    life += [attempt(n, "interrupted", 0, **lost(n, 9)) for n in (3, 4)]
    assert times_lost(life) == 3
    assert is_hopeless(life)


def test_a_worker_that_died_with_several_trials_is_held_against_each_less() -> None:
    life = [
        attempt(n, "interrupted", 0 if n else None, **{ATTR_LOST_BESIDE: True}) for n in range(5)
    ]
    assert not is_hopeless(life)
    assert is_hopeless([*life, attempt(5, "interrupted", 0, **{ATTR_LOST_BESIDE: True})])


def test_an_attempt_that_was_committed_twice_is_one() -> None:
    token: dict[str, Any] = {ATTR_ASK: "one"}
    trials = [attempt(n, None, None, **token) for n in (0, 1)] + [attempt(2, "done")]
    assert [[t.number for t in life] for life in lives_of(trials)] == [[0], [2]]


def test_failures_of_earlier_sessions_do_not_count() -> None:
    life = [attempt(0, "error"), attempt(1, "error", 0)]
    assert needs_another(life, num_before=2, retries=0)
    assert not needs_another([*life, attempt(2, "error", 0)], num_before=2, retries=0)


def test_what_is_complete_hopeless_or_failed_by_hand_is_left_alone() -> None:
    assert not needs_another([attempt(0, "done")], 0, 9)
    assert not needs_another([attempt(0, "error", **{ATTR_MAY_RETRY: False})], 0, 9)
    assert not needs_another([attempt(0, None)], 0, 9)
    assert optuna.__version__.startswith("5.")


def test_a_disk_without_room_is_no_failure_of_the_trial() -> None:
    assert is_interrupted(attempt(0, "disk"))
    assert is_interrupted(attempt(0, "interrupted"))
    assert not is_interrupted(attempt(0, "error"))
