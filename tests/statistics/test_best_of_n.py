from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from kltune.statistics.best_of_n import (
    kl_bound,
    n_for_bound,
    subset_weights,
    tied_kl,
    tied_share,
)

SCORES = np.array([[3.0, 1.0, 2.0, 3.0, 0.0, 2.0], [0.5, 0.5, 0.5, 0.5, 0.5, 0.5]])
GOLD = np.array([[1.0, 5.0, -2.0, 4.0, 0.0, 7.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]])


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6])
def test_the_weights_are_the_mean_over_all_subsets_with_ties_by_lot(n: int) -> None:
    for scores, gold, weights in zip(SCORES, GOLD, subset_weights(SCORES, n), strict=True):
        picks: list[float] = []
        for subset in itertools.combinations(range(6), n):
            top = max(scores[i] for i in subset)
            tied = [i for i in subset if scores[i] == top]
            picks.append(float(np.mean([gold[i] for i in tied])))
        assert weights.sum() == pytest.approx(1, abs=1e-12)
        assert float(weights @ gold) == pytest.approx(float(np.mean(picks)), abs=1e-12)


def _enumerated(probability: np.ndarray, reward: np.ndarray, n: int) -> np.ndarray:
    """Best-of-n of a discrete policy, by going through every n-tuple; ties by lot."""
    picked = np.zeros(len(probability))
    for tup in itertools.product(range(len(probability)), repeat=n):
        chance = math.prod(probability[i] for i in tup)
        top = max(reward[i] for i in tup)
        tied = [i for i in tup if reward[i] == top]
        for i in tied:
            picked[i] += chance / len(tied)
    return picked


@pytest.mark.parametrize("n", [2, 3, 4])
def test_kl_with_ties_is_that_of_the_enumerated_policy_and_below_the_bound(n: int) -> None:
    # Probabilities in twentieths, so that 20 completions are the policy itself.
    counts = np.array([9, 1, 6, 4])
    reward = np.array([0.0, 2.0, 1.0, 2.0])
    picked = _enumerated(counts / 20, reward, n)
    # The pick goes by the score alone: completions of one score are one outcome.
    true = float((picked * np.log(picked / (counts / 20)))[picked > 0].sum())
    sample = np.repeat(reward, counts)[None]
    assert tied_kl(sample, n)[0] == pytest.approx(true, abs=1e-6)
    assert true < kl_bound(n)


@pytest.mark.parametrize("n", [2, 4])
def test_expected_gold_of_best_of_n_is_unbiased_for_the_enumerated_policy(n: int) -> None:
    probability, reward = np.array([0.45, 0.05, 0.3, 0.2]), np.array([0.0, 2.0, 1.0, 2.0])
    gold = np.array([1.0, 5.0, -3.0, 0.5])
    true = float(_enumerated(probability, reward, n) @ gold)
    drawn = np.random.default_rng(0).choice(4, p=probability, size=(20_000, 6))
    values = (subset_weights(reward[drawn], n) * gold[drawn]).sum(axis=1)
    se = float(values.std() / math.sqrt(len(values)))
    assert abs(values.mean() - true) < 4 * se, (
        f"20,000 draws: {values.mean()} against {true}, se {se}"
    )


def test_the_bound_is_known_at_the_ends_and_turns_back_into_n() -> None:
    assert kl_bound(1) == 0
    assert kl_bound(4) == pytest.approx(0.636, abs=1e-3)
    assert kl_bound(1000) == pytest.approx(5.909, abs=1e-3)
    assert [n_for_bound(kl_bound(n)) for n in (1, 2, 7, 64)] == [1, 2, 7, 64]
    assert n_for_bound(0.637) == 5


def test_n_beyond_the_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="from 1 to 6"):
        subset_weights(SCORES, 7)


def test_the_share_of_tied_pairs() -> None:
    assert tied_share(SCORES[1:]) == 1
    assert tied_share(SCORES[:1]) == pytest.approx(4 / 30)
