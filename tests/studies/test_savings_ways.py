"""Ways to choose a setting and a stop, on made runs whose truth is known."""

from __future__ import annotations

import sys
from itertools import combinations

import numpy as np
import pytest
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-savings"))

import savings_ways as ways

STEPS = np.arange(0, 50, 10)


def test_a_window_is_the_mean_of_its_evaluations() -> None:
    gold = np.array([[0.0, 1.0, 2.0, 3.0, 9.0], [0.0, 2.0, 4.0, 6.0, 9.0]])
    assert ways.stopped_at(gold, STEPS, 10, 30).tolist() == [2.0, 4.0]
    assert ways.stopped_at(gold, STEPS, 40, 40).tolist() == [9.0, 9.0]


def test_a_stop_by_kl_is_the_first_evaluation_beyond_it_or_the_windows_last() -> None:
    gold = np.array([[0.0, 1.0, 2.0, 3.0, 4.0]] * 3)
    kl = np.array([[0.0, 0.5, 1.5, 3.0, 4.0], [0.0, 2.0, 1.0, 3.0, 4.0], [0.0, 0.1, 0.2, 0.3, 0.4]])
    assert ways.stopped_by_kl(gold, kl, 1.2, 3).tolist() == [2.0, 1.0, 3.0]
    assert ways.stopped_by_kl(gold, kl, 0.0, 3).tolist() == [1.0, 1.0, 1.0]  # never untrained


def test_a_stop_is_judged_by_runs_that_did_not_choose_it() -> None:
    rng = np.random.default_rng(3)
    noise = rng.normal(0, 1, (400, 9))
    assert abs(ways.own_stop(noise).mean()) < 0.1
    assert noise[:, 1:].max(axis=1).mean() > 1.0  # what judging by itself would give


def test_own_stop_and_best_of_n_are_what_loops_give() -> None:
    gold = np.random.default_rng(5).normal(0, 1, (4, 5, 6))
    seeds = range(5)
    for arm in gold:
        by_loop = [
            np.mean([arm[s, 1 + arm[other, 1:].argmax()] for other in seeds if other != s])
            for s in seeds
        ]
        assert ways.own_stop(arm) == pytest.approx(by_loop)
    for num in (1, 2, 4):
        found = []
        for subset in combinations(range(4), num):
            for pick in seeds:
                flat = gold[list(subset), pick, 1:]
                place, stop = np.unravel_index(flat.argmax(), flat.shape)
                others = [s for s in seeds if s != pick]
                found.append(gold[subset[place], others, 1 + stop].mean())
        assert ways.best_of_n(gold, num) == pytest.approx(np.mean(found))


def test_the_best_of_all_is_the_better_setting_and_one_is_a_setting_at_random() -> None:
    rng = np.random.default_rng(3)
    gold = rng.normal(0, 1, (2, 200, 9)) + np.array([0.0, 3.0])[:, None, None]
    assert ways.best_of_n(gold, 2) == pytest.approx(3.0, abs=0.1)
    assert ways.best_of_n(gold, 1) == pytest.approx(1.5, abs=0.1)


def made(rng: np.random.Generator, num: int, mean: float, seeds: np.ndarray) -> np.ndarray:
    """Settings x seeds: effects of both, and of each pair."""
    own = rng.normal(0, 0.2, (num, 1))
    return mean + own + seeds[None] + rng.normal(0, 0.2, (num, len(seeds)))


@pytest.mark.parametrize("comparisons", [1, 6])
def test_the_interval_of_a_difference_covers(comparisons: int) -> None:
    rng = np.random.default_rng(0)
    covers = 0
    for _ in range(1000):
        seeds = rng.normal(0, 0.3, 8)
        found = ways.crossed(made(rng, 8, 0.8, seeds), made(rng, 8, 0.5, seeds), comparisons)
        covers += found["low"] <= 0.3 <= found["high"]
    assert covers / 1000 >= 1 - 0.05 / comparisons - 0.01


def test_what_all_seeds_share_cancels_in_a_difference_only() -> None:
    rng = np.random.default_rng(0)
    seeds = rng.normal(0, 2.0, 8)
    a, b = made(rng, 8, 1.0, seeds), made(rng, 8, 0.6, seeds)
    one, alone = ways.crossed(a, b), ways.crossed(a)
    assert one["high"] - one["low"] < 1.0
    assert alone["high"] - alone["low"] > 2.0


def test_the_interval_of_the_best_of_n_covers_its_own_mean_and_what_a_sweep_is_ahead() -> None:
    rng = np.random.default_rng(1)
    gold = rng.normal(0, 0.1, (8, 8, 5)) + rng.normal(0, 0.3, (8, 1, 1))
    swept = rng.normal(2.0, 0.1, (8, 8))
    found = ways.best_of_n_between(gold, 4, swept)
    assert found["gold"]["low"] < found["gold"]["mean"] < found["gold"]["high"]
    assert found["gold"]["mean"] == pytest.approx(ways.best_of_n(gold, 4))
    assert 1.0 < found["sweep_minus"]["low"] < found["sweep_minus"]["mean"] < 2.5
    again = ways.best_of_n_between(gold, 4, swept)
    assert again == found


def test_a_seed_that_was_drawn_twice_does_not_judge_itself() -> None:
    """Each run has its highest gold at a place of its own, and is worthless there to all others."""
    gold = np.zeros((1, 4, 5))
    for seed in range(4):
        gold[0, seed, 1 + seed] = 1.0
    found = ways.best_of_n_between(gold, 1, np.zeros((2, 4)))
    assert found["gold"] == {"mean": 0.0, "low": 0.0, "high": 0.0}


def test_the_estimate_is_within_its_interval_where_draws_are_one_sided() -> None:
    gold = np.array([[[0.0, 1.0, 0.0], [0.0, 0.2, 0.9]]])
    found = ways.best_of_n_between(gold, 1, np.zeros((1, 2)))["gold"]
    assert found["low"] <= found["mean"] <= found["high"]
    one_sided = ways._percentiles(2.0, np.zeros(100))
    assert one_sided == {"mean": 2.0, "low": 0.0, "high": 2.0}
