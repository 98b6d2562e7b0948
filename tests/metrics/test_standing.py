from __future__ import annotations

from typing import Any

from kltune.metrics.standing import Standing


def ending(time: float, value: float | None, **more: Any) -> dict[str, Any]:
    return {"state": "complete", "time": time, "value": value, "feasible": True, **more}


def shown(standing: Standing) -> list[tuple[str, float, int]]:
    return [(point.name, point.value, point.step) for point in standing.points()]


def test_each_trial_that_ended_is_a_step_in_the_order_of_their_ends() -> None:
    standing = Standing()
    standing.note(1, ending(30.0, 0.4))
    standing.note(2, ending(10.0, 0.5))
    standing.note(3, ending(20.0, 0.9, feasible=False))
    assert shown(standing) == [
        ("study/trials_ended", 1.0, 1),
        ("study/best_value", 0.5, 1),
        ("study/trials_ended", 2.0, 2),
        ("study/best_value", 0.5, 2),
        ("study/trials_ended", 3.0, 3),
        ("study/best_value", 0.5, 3),
    ]


def test_it_goes_on_from_what_was_sent_whichever_process_counts() -> None:
    first = Standing()
    first.note(1, ending(10.0, 0.4))
    first.settle()
    assert first.points() == []
    second = Standing.of(first.kept())
    second.note(1, ending(10.0, 0.4))  # seen again
    second.note(2, ending(20.0, None, state="failed", feasible=None))
    second.note(3, ending(20.0, None, state="interrupted", feasible=None))  # goes on later
    second.note(4, None)
    assert shown(second) == [("study/trials_ended", 2.0, 2), ("study/best_value", 0.4, 2)]
