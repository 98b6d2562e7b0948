"""Intervals of a difference hold as often as they say, and widen with what is not known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from kltune.statistics.contrast import SeedNoise, mean_interval, of_intervals, paired, unpaired


def normal(mean: float, sd: float, count: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(mean, sd, count)


def test_paired_is_students_t_on_the_differences() -> None:
    a, b = normal(1, 1, 40), normal(0.5, 1, 40, seed=2)
    found = paired(a, b)
    known = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((known.low, known.high))
    assert found.difference == pytest.approx(float((a - b).mean()))
    assert found.is_paired


def test_unpaired_is_welchs() -> None:
    a, b = normal(1, 1, 40), normal(0.5, 3, 12, seed=2)
    found = unpaired(a, b)
    known = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((known.low, known.high))
    assert not found.is_paired


def test_pairing_pays_where_prompts_are_hard_for_both() -> None:
    hard = normal(0, 2, 64)
    a, b = hard + 0.3 + normal(0, 0.3, 64, seed=2), hard + normal(0, 0.3, 64, seed=3)
    assert paired(a, b).is_told_apart
    assert not unpaired(a, b).is_told_apart


def test_several_comparisons_and_seed_noise_widen_the_interval() -> None:
    a, b = normal(1, 1, 64), normal(0, 1, 64, seed=2)
    alone = paired(a, b)
    many = paired(a, b, comparisons=10)
    seeds = paired(a, b, seeds=(SeedNoise(0.05, 3), SeedNoise(0.05, 3)))
    width = alone.high - alone.low
    assert many.high - many.low > 1.3 * width
    assert seeds.high - seeds.low > 1.3 * width
    assert many.difference == seeds.difference == alone.difference


def test_bonferroni_holds_at_once_in_nineteen_of_twenty() -> None:
    rng = np.random.default_rng(5)
    false = 0
    for _ in range(400):
        runs = rng.normal(0, 1, (4, 30))
        pairs = [(i, j) for i in range(4) for j in range(i)]
        false += any(paired(runs[i], runs[j], comparisons=6).is_told_apart for i, j in pairs)
    assert false / 400 < 0.075
    assert false > 0


def test_the_same_run_twice_has_no_interval_and_is_not_told_apart() -> None:
    a = normal(0, 1, 20)
    for found in (paired(a, a), paired(a + 1, a), unpaired(np.ones(5), np.zeros(5))):
        assert not found.is_told_apart
        assert not found.has_interval


def test_two_differing_prompts_tell_nothing() -> None:
    a = np.zeros(64)
    b = a.copy()
    b[:2] = 100.0
    assert not paired(b, a).is_told_apart


def test_symmetric_intervals_add_in_squares() -> None:
    difference, low, high = of_intervals((1.0, 0.7, 1.3), (0.5, 0.1, 0.9))
    assert difference == pytest.approx(0.5)
    assert (difference - low, high - difference) == pytest.approx((0.5, 0.5))


def test_skew_intervals_keep_their_sides() -> None:
    # Upper error of the first with the lower one of the second.
    _, low, high = of_intervals((1.0, 0.9, 2.0), (0.0, -0.1, 3.0))
    assert low == pytest.approx(1 - math.hypot(0.1, 3.0))
    assert high == pytest.approx(1 + math.hypot(1.0, 0.1))


def test_the_interval_of_a_mean_is_students() -> None:
    a = normal(0, 1, 9)
    known = stats.ttest_1samp(a, 0).confidence_interval(0.95)
    assert mean_interval(a) == pytest.approx((known.low, known.high))
