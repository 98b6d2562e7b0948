from __future__ import annotations

from typing import Any

from kltune.metrics.rows import last_ending, merge_attempts, standing_warnings


def _row(step: int, attempt: int) -> dict[str, Any]:
    return {"step": step, "attempt": attempt}


def _event(event: str, step: int, attempt: int) -> dict[str, Any]:
    return {"event": event, "step": step, "attempt": attempt}


def test_the_later_attempt_wins_a_repeated_step() -> None:
    rows = [_row(1, 1), _row(2, 1), _row(2, 2), _row(3, 2)]
    assert merge_attempts(rows, []) == [_row(1, 1), _row(2, 2), _row(3, 2)]


def test_what_an_attempt_did_beyond_its_checkpoint_does_not_count() -> None:
    rows = [_row(step, 1) for step in range(1, 8)] + [_row(6, 2)]
    merged = merge_attempts(rows, [_event("started", 0, 1), _event("resumed", 5, 2)])
    assert [(row["step"], row["attempt"]) for row in merged] == [
        (1, 1),
        (2, 1),
        (3, 1),
        (4, 1),
        (5, 1),
        (6, 2),
    ]


def test_a_retry_from_the_start_replaces_the_whole_curve() -> None:
    rows = [_row(0, 1), _row(1, 1), _row(2, 1), _row(0, 2), _row(1, 2)]
    merged = merge_attempts(rows, [_event("started", 0, 1), _event("started", 0, 2)])
    assert merged == [_row(0, 2), _row(1, 2)]


def test_the_end_of_an_earlier_attempt_is_not_the_end_of_the_trial() -> None:
    events = [_event("started", 0, 1), _event("ended", 9, 1), _event("resumed", 5, 2)]
    assert last_ending(events, attempt=2) is None
    assert last_ending([*events, _event("ended", 12, 2)], attempt=2) == _event("ended", 12, 2)
    late = [*events, _event("ended", 12, 2), _event("ended", 9, 1)]
    assert last_ending(late, attempt=2) == _event("ended", 12, 2)


def _warning(guard: str, step: int, attempt: int) -> dict[str, Any]:
    return {**_event("warning", step, attempt), "guard": guard}


def test_a_warning_beyond_the_step_that_a_later_attempt_went_on_from_is_overtaken() -> None:
    events = [
        _event("started", 0, 1),
        _warning("repetition", 5, 1),
        _warning("truncation", 7, 1),
        _event("resumed", 5, 2),
        _warning("entropy_collapse", 6, 2),
    ]
    assert [(w["guard"], w["step"]) for w in standing_warnings(events)] == [
        ("repetition", 5),
        ("entropy_collapse", 6),
    ]
    restarted = [*events, _event("started", 0, 3)]
    assert standing_warnings(restarted) == []


def test_a_guard_counts_once_by_its_first_warning() -> None:
    events = [_warning("truncation", 9, 2), _warning("truncation", 7, 1)]
    assert [w["step"] for w in standing_warnings(events)] == [7]
