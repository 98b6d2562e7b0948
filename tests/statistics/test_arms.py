"""Figures over seeds are those computed by hand; intervals hold as often as they say; no stop is judged by its own noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kltune.statistics.arms import (
    MeanInterval,
    against,
    at_end,
    at_kl,
    mean_of,
    over_run,
    rank_agreement,
    stop_place,
    when_stopped,
)

CURVES = np.array([[0.0, 1.0, 4.0, 2.0], [2.0, 3.0, 4.0, 6.0]])


def test_a_mean_of_three_seeds_by_hand() -> None:
    found = mean_of(np.array([1.0, 2.0, 3.0]))
    # t(0.975, 2 df) = 4.3027; sd 1; 4.3027 / sqrt(3) = 2.4841.
    assert (found.mean, found.sd, found.num) == (2.0, 1.0, 3)
    assert found.low == pytest.approx(2 - 2.4841, abs=1e-4)
    assert found.high == pytest.approx(2 + 2.4841, abs=1e-4)
    assert not found.excludes_zero


def test_five_intervals_at_once_have_bonferronis_limit() -> None:
    values = np.arange(11.0)
    found = mean_of(values, comparisons=5)
    # t(1 - 0.05 / 10, 10 df) = 3.1693 by the tables.
    half = 3.1693 * values.std(ddof=1) / math.sqrt(11)
    assert found.high - found.mean == pytest.approx(half, rel=1e-4)


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [(0.1, 1, True), (-1, -0.1, True), (-1, 1, False), (0, 1, False), (-1, 0, False)],
)
def test_told_apart_is_an_interval_on_one_side_of_zero(
    low: float, high: float, *, told: bool
) -> None:
    assert MeanInterval((low + high) / 2, low, high, 1.0, 8).excludes_zero is told


def test_one_seed_has_no_interval() -> None:
    with pytest.raises(AssertionError, match="one seed"):
        mean_of(np.array([1.0]))


def test_differences_are_taken_seed_by_seed() -> None:
    # Seeds differ by far more than settings, which the pairs take out.
    values = {
        "a": np.array([10.0, 20.0, 30.0]),
        "ref": np.array([9.0, 18.0, 27.0]),
        "b": np.array([9.5, 18.5, 27.5]),
    }
    found = against(values, "ref")
    assert list(found) == ["a", "b"]
    assert found["a"] == mean_of(np.array([1.0, 2.0, 3.0]), 2)
    assert found["b"].mean == found["b"].low == found["b"].high == 0.5
    assert found["b"].excludes_zero
    assert against(values, "ref", comparisons=1)["a"] == mean_of(np.array([1.0, 2.0, 3.0]))


def test_an_interval_holds_in_95_of_100() -> None:
    values_NS = np.random.default_rng(1).normal(3.0, 2.0, size=(4000, 8))
    found = [mean_of(values_S) for values_S in values_NS]
    share = np.mean([one.low <= 3.0 <= one.high for one in found])
    assert share == pytest.approx(0.95, abs=0.012)  # 3.5 standard errors


@pytest.mark.parametrize(("seeds", "arms"), [(4, 7), (8, 14)])
@pytest.mark.parametrize("is_uneven", [False, True])
def test_all_differences_hold_at_once_in_95_of_100(
    seeds: int, arms: int, *, is_uneven: bool
) -> None:
    """Also where arms have spreads of their own."""
    rng = np.random.default_rng(seeds)
    sd_A1 = np.linspace(0.2, 2.0, arms + 1)[:, None] if is_uneven else 1.0
    truth = 0.3 * np.arange(arms + 1)
    held = 0
    for _ in range(1500):
        shared_S = rng.normal(0, 5, size=seeds)
        gold_AS = truth[:, None] + shared_S + sd_A1 * rng.normal(size=(arms + 1, seeds))
        found = against({str(a): gold_AS[a] for a in range(arms + 1)}, "0")
        held += all(one.low <= truth[int(a)] <= one.high for a, one in found.items())
    assert 0.94 <= held / 1500 <= 0.985


def test_the_end_is_the_mean_of_the_last_two_and_the_run_that_after_step_0() -> None:
    assert at_end(CURVES).tolist() == [3.0, 5.0]
    assert over_run(CURVES).tolist() == pytest.approx([7 / 3, 13 / 3])


def test_the_stop_is_where_the_mean_over_seeds_is_highest_after_step_0() -> None:
    assert stop_place(CURVES) == 2  # means 2, 4, 4: the first of equals
    assert stop_place(np.array([[9.0, 1.0, 2.0]])) == 2  # before any step nothing is stopped


def test_each_seed_is_stopped_where_the_others_are_highest() -> None:
    # Seed 0 by seed 1's peak (place 3), seed 1 by seed 0's (place 2).
    assert when_stopped(CURVES).tolist() == [2.0, 4.0]
    with pytest.raises(AssertionError, match="other seeds"):
        when_stopped(CURVES[:1])


def test_a_stop_chosen_on_other_seeds_is_unbiased_where_the_maximum_is_not() -> None:
    gold_NSC = np.random.default_rng(2).normal(size=(2000, 8, 13))  # nothing but noise around 0
    stopped = np.array([when_stopped(gold_SC).mean() for gold_SC in gold_NSC])
    highest = np.array([gold_SC[:, stop_place(gold_SC)].mean() for gold_SC in gold_NSC])
    own = gold_NSC[:, :, 1:].max(axis=2).mean()
    error = stopped.std(ddof=1) / math.sqrt(len(stopped))
    assert abs(stopped.mean()) < 4 * error
    assert error < 0.02
    assert highest.mean() > 0.4
    assert own > 1.4


def test_a_true_peak_is_found() -> None:
    truth_C = np.array([0.0, 0.5, 1.0, 0.5, 0.0])
    gold_SC = truth_C + np.random.default_rng(3).normal(0, 0.05, size=(8, 5))
    assert when_stopped(gold_SC) == pytest.approx(gold_SC[:, 2])


def test_what_a_seed_had_at_a_kl_lies_between_two_evaluations() -> None:
    kl = np.array([[0.0, 1.0, 3.0], [0.0, 2.0, 4.0], [0.0, 0.1, 0.2], [5.0, 6.0, 7.0]])
    gold = np.array([[0.0, 10.0, 30.0], [0.0, 8.0, 4.0], [1.0, 1.0, 1.0], [7.0, 8.0, 9.0]])
    found = at_kl(gold, kl, 2.0)
    # Half-way between 10 and 30; just there; never; at once.
    assert found[:2].tolist() == [20.0, 8.0]
    assert math.isnan(found[2])
    assert found[3] == 7.0


def test_a_kl_that_is_crossed_twice_counts_the_first_time() -> None:
    kl, gold = np.array([[0.0, 2.0, 0.5, 2.0]]), np.array([[0.0, 4.0, 8.0, 12.0]])
    assert at_kl(gold, kl, 1.0).tolist() == [2.0]


def test_a_kl_that_is_not_finite_is_passed_over() -> None:
    kl, gold = np.array([[0.0, math.nan, math.nan]]), np.array([[0.0, 1.0, 2.0]])
    assert math.isnan(at_kl(gold, kl, 1.0)[0])


def settings(order: list[float], noise: float, seed: int = 0) -> np.ndarray:
    return np.array(order)[:, None] + np.random.default_rng(seed).normal(0, noise, (len(order), 8))


def test_an_order_that_is_the_same_agrees_and_costs_nothing() -> None:
    early, late = settings([1, 2, 3, 4], 0.01), settings([10, 20, 30, 40], 0.01, 1)
    found = rank_agreement(early, late)
    assert [found.correlation, found.low, found.high] == pytest.approx([1, 1, 1])
    assert (found.regret, found.regret_low, found.regret_high) == (0, 0, 0)


def test_an_order_that_is_reversed_costs_best_minus_worst() -> None:
    early, late = settings([4, 3, 2, 1], 0.01), settings([10, 20, 30, 40], 0.01, 1)
    found = rank_agreement(early, late)
    assert [found.correlation, found.low, found.high] == pytest.approx([-1, -1, -1])
    assert found.regret == pytest.approx(30, abs=0.05)
    assert found.regret_low < found.regret < found.regret_high


def test_an_order_of_noise_agrees_with_nothing() -> None:
    found = [
        rank_agreement(settings([0] * 6, 1, 2 * n), settings([0] * 6, 1, 2 * n + 1), draws=200)
        for n in range(60)
    ]
    assert abs(np.mean([one.correlation for one in found])) < 0.2  # 3.5 standard errors
    assert np.mean([one.low < 0 < one.high for one in found]) > 0.9
    assert abs(np.mean([one.regret for one in found])) < 0.35


def test_the_regret_is_that_of_seeds_that_the_choice_did_not_see() -> None:
    # By hand, two seeds. Left out 0: chosen 0, best 1, on seed 0 late[1] - late[0] = -1. Left out 1: both 2.
    early = np.array([[0.0, 3.0], [0.0, 2.0], [9.0, 1.0]])
    late = np.array([[5.0, 1.0], [4.0, 9.0], [6.0, 0.0]])
    found = rank_agreement(early, late)
    assert found.regret == pytest.approx((-1 + 0) / 2)


def test_the_same_call_draws_the_same() -> None:
    early, late = settings([1, 2, 3], 2), settings([1, 2, 3], 2, 1)
    assert rank_agreement(early, late) == rank_agreement(early, late)
    assert rank_agreement(early, late, seed=1) != rank_agreement(early, late)


def test_settings_that_all_tie_have_no_order() -> None:
    found = rank_agreement(np.zeros((3, 4)), settings([1, 2, 3], 0.1)[:, :4])
    assert math.isnan(found.correlation)
    assert math.isnan(found.low)
    assert math.isnan(found.high)


def test_ties_share_their_ranks() -> None:
    # Ranks 1.5, 1.5, 3 against 1, 2, 3: Spearman's correlation is sqrt(3) / 2.
    early, late = np.tile([[1.0], [1.0], [2.0]], 2), np.tile([[1.0], [2.0], [3.0]], 2)
    assert rank_agreement(early, late).correlation == pytest.approx(math.sqrt(3) / 2)
