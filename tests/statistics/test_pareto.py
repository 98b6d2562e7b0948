"""The Pareto set against its definition, point by point."""

from __future__ import annotations

import time

import numpy as np
import pytest

from kltune.statistics.pareto import non_dominated


def by_definition(points: np.ndarray) -> list[bool]:
    def beats(one: np.ndarray, other: np.ndarray) -> bool:
        return bool((one >= other).all() and (one > other).any())

    sound = [bool(np.isfinite(p).all()) for p in points]
    return [
        ok and not any(beats(q, p) for q, is_q in zip(points, sound, strict=True) if is_q)
        for p, ok in zip(points, sound, strict=True)
    ]


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("levels", [3, 1000])
def test_it_is_what_the_definition_says(axes: int, levels: int) -> None:
    rng = np.random.default_rng(axes * levels)
    for _ in range(40):  # few levels: many ties and equal points
        points = rng.integers(0, levels, size=(25, axes)).astype(float)
        points[rng.random(25) < 0.1, 0] = np.nan
        assert non_dominated(points).tolist() == by_definition(points)


def test_equal_points_are_all_in_or_all_out() -> None:
    points = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.5], [0.0, 0.5]])
    assert non_dominated(points).tolist() == [True, True, True, False, False]


def test_more_on_one_axis_alone_is_enough_to_beat() -> None:
    assert non_dominated(np.array([[1.0, 0.0], [1.0, 0.1]])).tolist() == [False, True]


def test_no_points_and_points_that_are_not_finite() -> None:
    assert non_dominated(np.empty((0, 2))).tolist() == []
    found = non_dominated(np.array([[np.inf, 0.0], [0.0, np.nan], [-5.0, -5.0]]))
    assert found.tolist() == [False, False, True]


def test_nine_thousand_points_take_no_time_to_speak_of() -> None:
    angles = np.random.default_rng(0).uniform(0, np.pi / 2, 9000)
    points = np.stack(
        [np.cos(angles), np.sin(angles)], axis=1
    )  # none beats another: the slowest case
    start = time.perf_counter()
    assert non_dominated(points).all()
    assert time.perf_counter() - start < 5.0
