from __future__ import annotations

import random
from statistics import stdev

import pytest

from kltune.diagnose.series import (
    bound,
    counted,
    first_part,
    last_part,
    level,
    moving_mean,
    noise,
    slope,
    steps_text,
)


def test_noise_is_the_spread_around_a_trend() -> None:
    draw = random.Random(0)
    numbers = [0.1 * i + draw.gauss(0, 0.5) for i in range(400)]
    assert noise(numbers) == pytest.approx(0.5, rel=0.15)
    assert stdev(numbers) > 5


def test_a_jump_does_not_count_as_noise() -> None:
    draw = random.Random(0)
    numbers = [draw.gauss(0, 1) + (100 if i > 50 else 0) for i in range(100)]
    assert noise(numbers) == pytest.approx(1, rel=0.5)


def test_noise_of_a_straight_line_is_none() -> None:
    assert noise([0.5 * i for i in range(10)]) == 0
    assert noise([1.0, 2.0]) == 0
    assert noise([i / 40 for i in range(40)]) == 0  # but for the last digits


def test_parts_hold_a_share_and_at_least_some() -> None:
    pairs = [(i, float(i)) for i in range(40)]
    assert len(last_part(pairs)) == len(first_part(pairs)) == 10
    assert last_part(pairs)[-1] == (39, 39.0)
    assert len(last_part(pairs[:2])) == 2
    assert level(first_part(pairs, share=0.01)) == 1


def test_a_moving_mean_names_its_steps() -> None:
    assert moving_mean([(1, 1.0), (5, 3.0), (9, 8.0)], 2) == [(1, 5, 2.0), (5, 9, 5.5)]


def test_a_slope_has_its_error() -> None:
    draw = random.Random(1)
    x = [draw.random() for _ in range(500)]
    found = slope(x, [3 * a + draw.gauss(0, 0.1) for a in x])
    assert found is not None
    assert found[0] == pytest.approx(3, abs=4 * found[1])
    assert found[1] == pytest.approx(0.1 / (500 / 12) ** 0.5, rel=0.15)
    assert slope([1.0] * 9, [2.0] * 9) is None
    assert slope([1.0, 2.0], [1.0, 2.0]) is None


def test_more_looks_ask_for_more() -> None:
    assert bound(0.01, 1) == pytest.approx(2.326, abs=1e-3)
    assert bound(0.01, 10) == pytest.approx(3.090, abs=1e-3)


def test_steps_are_named_as_people_do() -> None:
    assert (steps_text(3, 3), steps_text(3, 9)) == ("step 3", "steps 3-9")


def test_one_is_no_plural() -> None:
    assert (counted(1, "step"), counted(0, "step"), counted(2, "row")) == (
        "1 step",
        "0 steps",
        "2 rows",
    )
