"""What counts as the same, and where a replay parts from its record."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kltune.replay.compare import Likeness, compare_row, compare_trials


def row(step: int, **values: Any) -> dict[str, Any]:
    head = {"schema": 1, "trial": 7, "attempt": 1, "step": step, "time": 1000.0 + step}
    named = {name.replace("__", "/"): value for name, value in values.items()}
    return {**head, "train/loss": 0.25, "kl/exact_token": 0.0125 * step, **named}


def evaluation(step: int, **values: Any) -> dict[str, Any]:
    found = row(step, eval__gold=0.5, gold_by_prompt=[0.0, 1.0], **values)
    del found["train/loss"], found["kl/exact_token"]
    return found


def test_times_attempts_and_trl_names_are_not_compared() -> None:
    again = {**row(3), "attempt": 2, "time": 5.0, "time/step_s": 0.4, "reward": 9.0}
    compared = compare_row("step", {**row(3), "time/step_s": 0.2, "reward": 1.0}, again)
    assert (compared.num_same, compared.differences) == (2, ())


def test_the_last_bit_counts() -> None:
    loss = math.nextafter(0.25, 1)
    compared = compare_row("step", row(3), row(3, train__loss=loss))
    (difference,) = compared.differences
    assert (difference.name, difference.recorded, difference.replayed) == ("train/loss", 0.25, loss)


def test_what_was_not_finite_twice_is_the_same_and_once_is_not() -> None:
    broken = row(3, train__loss=None)
    assert compare_row("step", broken, row(3, train__loss=None)).is_same
    (difference,) = compare_row("step", broken, row(3)).differences
    assert difference.share == math.inf


def test_gold_of_a_single_prompt_is_compared() -> None:
    compared = compare_row(
        "evaluation", evaluation(0), evaluation(0) | {"gold_by_prompt": [1.0, 0.0]}
    )
    assert [one.name for one in compared.differences] == ["gold_by_prompt[0]", "gold_by_prompt[1]"]


def test_only_steps_that_both_hold_are_compared_in_the_order_of_events() -> None:
    recorded = [row(s) for s in (1, 2, 3)], [evaluation(0), evaluation(2)]
    replayed = [row(s) for s in (1, 2)], [evaluation(s) for s in (0, 1, 2)]
    comparison = compare_trials(recorded, replayed)
    order = [(one.kind, one.step) for one in comparison.compared]
    assert order == [("evaluation", 0), ("step", 1), ("step", 2), ("evaluation", 2)]
    assert comparison.likeness is Likeness.SAME
    assert (comparison.count("step"), comparison.count("evaluation")) == (2, 2)


def test_a_quantity_of_one_side_alone_is_named_and_no_difference() -> None:
    comparison = compare_trials(([row(1, kl__old=1.0)], []), ([row(1, tokens__new=2.0)], []))
    assert comparison.likeness is Likeness.SAME
    assert (comparison.only_recorded, comparison.only_replayed) == (("kl/old",), ("tokens/new",))


@pytest.mark.parametrize(
    ("loss", "likeness"), [(0.2500001, Likeness.ROUNDING), (0.3, Likeness.DIFFERENT)]
)
def test_the_size_of_the_first_difference_tells_rounding_from_another_computation(
    loss: float, likeness: Likeness
) -> None:
    replayed = [row(1), row(2, train__loss=loss), row(3, train__loss=9.0)]
    comparison = compare_trials(([row(s) for s in (1, 2, 3)], []), (replayed, []))
    assert comparison.likeness is likeness
    assert comparison.first is not None
    assert comparison.first.place() == "step 2"


def test_tiny_numbers_are_not_blown_up() -> None:
    compared = compare_row("step", row(1, kl__sampler_token=2e-9), row(1, kl__sampler_token=-6e-9))
    assert compared.differences[0].share == pytest.approx(8e-6)


def test_without_a_common_step_nothing_is_claimed() -> None:
    assert compare_trials(([row(1)], []), ([row(2)], [])).likeness is Likeness.NOTHING
