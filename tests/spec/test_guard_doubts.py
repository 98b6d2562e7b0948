from __future__ import annotations

from typing import Any

import pytest

from kltune.spec.guard_doubts import evaluated_steps, guard_doubts
from tests.fake_bank import small_spec


def doubts(steps: int, every: int, **guards: Any) -> list[str]:
    spec = small_spec(
        trainer={"steps": steps}, evaluate={"every": every, "prompts": 16}, guards=guards
    )
    return [str(doubt) for doubt in guard_doubts(spec)]


def test_guards_that_are_off_are_not_doubted() -> None:
    assert doubts(2, 1) == []


@pytest.mark.parametrize(
    ("guard", "enough", "too_few", "every", "need"),
    [
        ({"stalled": {"warmup": 20, "patience": 2}}, 35, 29, 10, "2 evaluations after step 20"),
        ({"stalled": {"warmup": 0, "window": 9, "patience": 1}}, 18, 17, 1, "1 evaluation after"),
        ({"local_kl": {"warmup": 0, "window": 9, "patience": 1}}, 9, 8, 1, "1 evaluation after"),
        ({"gold_drop": {"patience": 2}}, 30, 20, 10, "2 evaluations after step 10"),
        ({"jump": {"patience": 2}}, 3, 2, 1, "2 steps after step 1"),
        ({"negative_kl": {"patience": 3, "warmup": 4}}, 7, 6, 1, "3 steps after step 4"),
        ({"kl": {"limit": 1, "over": "evaluations", "patience": 3}}, 3, 2, 1, "3 evaluations"),
    ],
)
def test_a_guard_is_doubted_exactly_where_a_trial_is_too_short_for_it(
    guard: dict[str, Any], enough: int, too_few: int, every: int, need: str
) -> None:
    assert doubts(enough, every, **guard) == []
    (told,) = doubts(too_few, every, **guard)
    assert told.startswith(f"guards: {too_few} steps with an evaluation every {every} are too few")
    assert f"{next(iter(guard))} ({need}" in told


def test_guards_with_the_same_need_are_named_together() -> None:
    (told,) = doubts(20, 10, entropy="warn", repetition="warn", truncation="stop")
    assert told.endswith("entropy, repetition, truncation (2 evaluations after step 10)")


def test_the_last_step_is_evaluated_wherever_it_lies() -> None:
    spec = small_spec(trainer={"steps": 25}, evaluate={"every": 10, "prompts": 16})
    assert evaluated_steps(spec) == [10, 20, 25]
