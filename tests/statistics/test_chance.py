from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from kltune.statistics.chance import largest_of_all_pairs
from kltune.statistics.variance import Component, NoiseFloor


def floor_of(variance: float, num_seeds: int) -> NoiseFloor:
    part = Component(variance, 0.0, 1.0)
    nothing = Component(0.0, 0.0, 0.0)
    return NoiseFloor(num_seeds, 2000, part, nothing, nothing, variance)


def independent(num_settings: int, num_prompts: int = 2000) -> np.ndarray:
    """Scores whose covariance over prompts is exactly that of independent settings."""
    scores = np.random.default_rng(0).standard_normal((num_prompts, num_settings))
    scores -= scores.mean(axis=0)
    return np.linalg.qr(scores)[0].T * math.sqrt(num_prompts)


@pytest.mark.parametrize("num_settings", [2, 5, 20])
def test_with_many_prompts_the_bound_is_tukeys(num_settings: int) -> None:
    bound = largest_of_all_pairs(independent(num_settings), None, 0.05, 1)
    tukey = stats.studentized_range.ppf(0.95, num_settings, 1e5) / math.sqrt(2)
    assert float(bound.at(np.array([1999.0]))[0]) == pytest.approx(tukey, rel=0.04)


def test_with_few_seeds_the_bound_is_tukeys_at_their_degrees_of_freedom() -> None:
    scores = 1e-6 * independent(6)
    bound = largest_of_all_pairs(scores, floor_of(1.0, 7), 0.05, 1)
    tukey = stats.studentized_range.ppf(0.95, 6, 6) / math.sqrt(2)
    assert float(bound.at(np.array([6.0]))[0]) == pytest.approx(tukey, rel=0.05)


def test_settings_that_are_all_but_the_same_count_as_one() -> None:
    base = independent(2)
    copies = np.repeat(base, 10, axis=0) + 1e-6 * np.random.default_rng(1).standard_normal(
        (20, 2000)
    )
    many, two = (largest_of_all_pairs(s, None, 0.05, 1).alone for s in (independent(20), base))
    assert two < largest_of_all_pairs(copies, None, 0.05, 1).alone < many + 0.2


def test_the_same_seed_gives_the_same_bound() -> None:
    scores = independent(4)
    first, again = (largest_of_all_pairs(scores, None, 0.05, 3).alone for _ in range(2))
    assert first == again


def test_few_prompts_widen_the_bound_as_students_t_does() -> None:
    few, many = (largest_of_all_pairs(independent(4, n), None, 0.05, 1).alone for n in (8, 2000))
    tail = stats.norm.sf(many)
    assert few == pytest.approx(stats.t.isf(tail, 7), rel=0.15)
