from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from kltune.statistics.agreement import rank_agreement

PROMPTS = 64


def scores(
    rng: np.random.Generator, settings: int, correlation: float, spread: float
) -> tuple[np.ndarray, np.ndarray]:
    """Heavy-tailed values; prompts of their own difficulty, and setting x prompt effects that sizes share."""
    truth = rng.multivariate_normal([0, 0], [[1, correlation], [correlation, 1]], settings)
    truth = spread * np.sign(truth) * truth**2
    shared = rng.normal(size=PROMPTS) + 0.4 * rng.normal(size=(settings, PROMPTS))
    a, b = (
        truth[:, [side]] + shared + 0.4 * rng.standard_t(3, (settings, PROMPTS)) for side in (0, 1)
    )
    return a, b


def spearman(correlation: float) -> float:
    """Of a normal pair with this Pearson correlation."""
    return 6 / math.pi * math.asin(correlation / 2)


def rates(correlation: float, spread: float, draws: int, settings: int) -> tuple[int, int, int]:
    """Of ``draws``: intervals wholly above 0.5, wholly below it, and that miss the truth."""
    rng = np.random.default_rng(11)
    alike = different = missed = 0
    for draw in range(draws):
        found = rank_agreement(*scores(rng, settings, correlation, spread), seed=draw)
        assert found is not None
        low, high = found.correlation.low, found.correlation.high
        assert low is not None
        assert high is not None
        alike += low >= 0.5
        different += high < 0.5
        missed += not low <= spearman(correlation) <= high
    return alike, different, missed


def is_plausible(count: int, draws: int) -> bool:
    return bool(stats.binom.sf(count - 1, draws, 0.05) > 1e-3)


def test_shared_prompts_do_not_feign_agreement_where_settings_do_not_differ() -> None:
    draws = 15
    alike, different, _ = rates(0.0, 0.0, draws, 12)
    assert is_plausible(alike, draws), f"{alike} of {draws} said that the ranking holds"
    assert is_plausible(different, draws), f"{different} of {draws} said that it changes"


def test_settings_that_agree_are_seen_to_and_settings_that_do_not_are_seen_not_to() -> None:
    assert rates(0.99, 0.5, 8, 24)[0] >= 5
    assert rates(-0.5, 0.5, 8, 24)[1] >= 5


@pytest.mark.slow
@pytest.mark.parametrize("settings", [8, 24])
@pytest.mark.parametrize("spread", [0.1, 0.4])
@pytest.mark.parametrize("correlation", [0.0, 0.52, 0.95])
def test_false_verdicts_on_the_ranking_are_rare(
    correlation: float, spread: float, settings: int
) -> None:
    draws = 60
    alike, different, missed = rates(correlation, spread, draws, settings)
    assert is_plausible(missed, draws), f"{missed} of {draws} intervals missed the truth"
    if spearman(correlation) <= 0.5:
        assert is_plausible(alike, draws), f"{alike} of {draws} said that the ranking holds"
    else:
        assert is_plausible(different, draws), f"{different} of {draws} said that it changes"


def test_noise_of_prompts_is_taken_out() -> None:
    rng = np.random.default_rng(0)
    a, b = scores(rng, 300, 0.9, 0.15)
    found = rank_agreement(a, b, 0)
    assert found is not None
    assert found.observed < 0.8
    assert found.correlation.value == pytest.approx(spearman(0.9), abs=0.08)


def test_pairs_in_the_same_order_are_counted() -> None:
    base = np.arange(6.0)[:, None] + 0.01 * np.random.default_rng(0).normal(size=(6, 8))
    found = rank_agreement(base, base[::-1], 0)
    assert found is not None
    assert (found.num_pairs, found.num_alike) == (15, 0)
    assert found.correlation.value == -1


def test_few_settings_or_prompts_give_nothing() -> None:
    assert rank_agreement(np.ones((5, 64)), np.ones((5, 64)), 0) is None
    assert rank_agreement(np.ones((9, 7)), np.ones((9, 7)), 0) is None


def test_settings_that_all_tie_give_no_value() -> None:
    found = rank_agreement(np.ones((8, 64)), np.ones((8, 64)), 0)
    assert found is not None
    assert found.correlation.value is None
    assert (found.correlation.low, found.correlation.high) == (-1, 1)
