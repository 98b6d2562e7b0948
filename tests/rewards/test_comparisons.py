"""Labels follow gold, except for the share that was asked to be wrong."""

from __future__ import annotations

import random

import pytest

from kltune.errors import SpecError
from kltune.rewards.comparisons import Comparison, labelled, noisy_labels


def test_without_noise_labels_follow_gold_and_ties_have_none() -> None:
    assert noisy_labels([1.0, 0.0, 2.0], [0.0, 1.0, 2.0], 0.0, seed=0) == [True, False, None]


def test_label_noise_flips_the_stated_share() -> None:
    rng = random.Random(1)
    gold_a = [rng.random() for _ in range(20_000)]
    gold_b = [rng.random() for _ in range(20_000)]
    clean, noisy = (noisy_labels(gold_a, gold_b, p, seed=0) for p in (0.0, 0.2))
    flipped = sum(a != b for a, b in zip(clean, noisy, strict=True)) / len(clean)
    assert flipped == pytest.approx(0.2, abs=0.01)


def test_the_same_seed_flips_the_same_pairs_and_less_noise_flips_fewer_of_them() -> None:
    gold_a, gold_b = [1.0] * 500, [0.0] * 500
    little = noisy_labels(gold_a, gold_b, 0.1, seed=7)
    much = noisy_labels(gold_a, gold_b, 0.3, seed=7)
    assert much == noisy_labels(gold_a, gold_b, 0.3, seed=7)
    assert all(x or not y for x, y in zip(little, much, strict=True) if not x)


@pytest.mark.parametrize("noise", [-0.1, 0.5, 1.0])
def test_noise_that_leaves_no_signal_is_refused(noise: float) -> None:
    with pytest.raises(SpecError, match="label_noise"):
        noisy_labels([1.0], [0.0], noise, seed=0)


def test_ties_are_dropped() -> None:
    pairs = [((1,), (2,), (3,)), ((4,), (5,), (6,))]
    assert labelled(pairs, [None, True]) == [Comparison((4,), (5,), (6,), a_is_better=True)]
