"""False winners, coverage and power on data whose truth is known, each with a binomial bound."""

from __future__ import annotations

import numpy as np
import pytest
from confirm_case import gold_SKP
from scipy import stats

from kltune.statistics.confirmation import (
    compare_pair,
    confirm,
    power,
    sign_flip_smallest_p,
    stand,
)
from kltune.statistics.dunnett import critical


def at_most(rate: float, draws: int) -> int:
    """Count that a true ``rate`` stays below in 999 of 1000 experiments."""
    return int(stats.binom.ppf(0.999, draws, rate))


@pytest.mark.parametrize(
    ("seeds", "draws"),
    [
        (10, 60),
        pytest.param(3, 400, marks=pytest.mark.slow),
        pytest.param(10, 400, marks=pytest.mark.slow),
    ],
)
def test_equal_settings_give_a_false_winner_in_at_most_5_percent(seeds: int, draws: int) -> None:
    false = wrong = 0
    for root in range(draws):
        found = confirm(gold_SKP([1.0] * 4, seeds=seeds, prompts=24, root=root))
        false += any(c.is_told_apart for c in found.comparisons)
        wrong += found.verdict != "tied"
    limit = at_most(0.05, draws)
    assert false <= limit, f"{false} of {draws} draws told equal settings apart (bound {limit})"
    assert wrong <= limit, f"{wrong} of {draws} draws named a winner (bound {limit})"


@pytest.mark.slow
def test_all_intervals_hold_the_truth_at_once_in_95_percent() -> None:
    draws, means = 400, [1.0, 0.9, 0.5, 1.2]
    missed = alone = 0
    for root in range(draws):
        found = confirm(gold_SKP(means, seeds=5, prompts=24, root=1000 + root))
        truths = [means[0] - m for m in means[1:]]
        missed += any(
            not c.low <= t <= c.high for c, t in zip(found.comparisons, truths, strict=True)
        )
        alone += any(
            not s.low <= m <= s.high for s, m in zip(found.standings[:1], means, strict=False)
        )
    limit = at_most(0.05, draws)
    assert missed <= limit, f"{missed} of {draws} draws missed a difference (bound {limit})"
    assert alone <= limit, f"{alone} of {draws} draws missed a setting's gold (bound {limit})"


def test_prompts_alone_would_be_too_sure() -> None:
    """What the two-way interval is for: a t test over prompts, seeds ignored, names false winners."""
    draws = 100
    naive = ours = 0
    for root in range(draws):
        values = gold_SKP([1.0, 1.0], seeds=3, prompts=250, root=2000 + root)
        difference = values[:, 0] - values[:, 1]
        naive += stats.ttest_1samp(difference.mean(axis=0), 0).pvalue < 0.05
        ours += confirm(values).comparisons[0].is_told_apart
    assert naive > 2 * at_most(0.05, draws), f"{naive} of {draws}"
    assert ours <= at_most(0.05, draws), f"{ours} of {draws}"


@pytest.mark.slow
def test_the_least_detectable_difference_is_seen_in_8_of_10() -> None:
    draws = 300
    least = float(
        np.mean([confirm(gold_SKP([0.0] * 4, root=r)).least_detectable for r in range(20)])
    )
    seen = sum(
        confirm(gold_SKP([least, 0.0, 0.0, 0.0], root=3000 + r)).comparisons[0].is_told_apart
        for r in range(draws)
    )
    assert 0.7 <= seen / draws <= 0.9, f"{seen} of {draws} draws at {least:.3f}"
    assert seen / draws == pytest.approx(power(least, least / 3.3, 60, 2.45), abs=0.12)


def test_verdicts() -> None:
    stays = confirm(gold_SKP([2.0, 1.0, 0.0]))
    assert (stays.verdict, stays.winner) == ("stays", 0)
    changes = confirm(gold_SKP([1.0, 2.0, 1.6]))
    assert (changes.verdict, changes.winner) == ("changes", 1)
    tied = confirm(gold_SKP([1.0, 1.0, 0.0]))
    assert (tied.verdict, tied.winner) == ("tied", 0)
    assert tied.comparisons[1].seeds_above == 8
    assert tied.comparisons[1].p < 0.001


@pytest.mark.slow
def test_a_setting_that_now_and_then_collapses_is_not_taken_for_steady() -> None:
    draws = 300
    false = 0
    for root in range(draws):
        values = gold_SKP([1.0] * 5, seeds=10, prompts=24, root=4000 + root)
        wild = np.random.default_rng(root).normal(0, 0.3, (10, 1))
        values[:, 0] += wild
        false += any(c.is_told_apart for c in confirm(values).comparisons)
    limit = at_most(0.05, draws)
    assert false <= limit, f"{false} of {draws} draws (bound {limit})"


def test_numbers_without_any_scatter_tell_nothing() -> None:
    values = np.ones((4, 2, 6))
    values[:, 1] = 0
    found = confirm(values)
    assert found.verdict == "tied"
    assert not compare_pair(values[:, 0] - values[:, 1]).is_told_apart
    assert stand(values[:, 0]).mean == 1


@pytest.mark.parametrize("shape", [(1, 3, 9), (4, 1, 9), (4, 3, 1)])
def test_a_design_that_can_tell_nothing_is_refused(shape: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="at least 2"):
        confirm(np.zeros(shape))


def test_a_sign_flip_test_over_five_seeds_can_never_reject() -> None:
    assert sign_flip_smallest_p(5) == 1 / 16
    assert sign_flip_smallest_p(5) > 0.05 > sign_flip_smallest_p(6)


def test_more_comparisons_need_more() -> None:
    assert critical(6, 30, 0.95) > critical(2, 30, 0.95)
