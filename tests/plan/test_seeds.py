from __future__ import annotations

import math

import numpy as np
import pytest

from kltune.plan.seeds import seed_noise

SEED, SHARED, PROMPT, REST = 0.04, 0.6, 0.3, 0.2


def table(settings: int, seeds: int, prompts: int, seed: int) -> np.ndarray:
    """Gold with a known seed variance, correlation over seeds, and variances of a difference."""
    rng = np.random.default_rng(seed)

    def effect(variance: float, *shape: int) -> np.ndarray:
        return rng.normal(0, math.sqrt(variance), shape)

    gold = effect(SEED * SHARED, 1, seeds, 1) + effect(SEED * (1 - SHARED), settings, seeds, 1)
    gold = gold + effect(PROMPT / 2, settings, 1, prompts)
    return gold + effect(1.0, 1, 1, prompts) + effect(REST / 2, settings, seeds, prompts)


def test_known_components_are_recovered() -> None:
    tables = [seed_noise(table(4, 8, 64, draw), 0.0, None) for draw in range(60)]
    found = [t for t in tables if t is not None]
    assert len(found) == 60
    # 60 draws of 8 seeds: the mean of a variance with 7 degrees of freedom within 4 standard errors
    bound = 4 * SEED * math.sqrt(2 / 7 / 60)
    assert abs(np.mean([f.seed for f in found]) - SEED) < bound
    pairs = [2 * f.seed * (1 - f.correlation) for f in found]
    assert np.mean(pairs) == pytest.approx(2 * SEED * (1 - SHARED), rel=0.25)
    assert np.mean([f.prompt for f in found]) == pytest.approx(PROMPT, rel=0.1)
    assert np.mean([f.prompt_seed for f in found]) == pytest.approx(REST, rel=0.05)


def test_what_the_samples_bring_is_taken_off_the_rest() -> None:
    gold = table(3, 6, 64, 1)
    whole, less = seed_noise(gold, 0.0, None), seed_noise(gold, 0.05, None)
    assert whole is not None
    assert less is not None
    assert whole.prompt_seed - less.prompt_seed == pytest.approx(0.05)


def test_one_setting_alone_says_nothing_of_what_two_share() -> None:
    found = seed_noise(table(1, 8, 64, 2), 0.0, pair=0.9)
    assert found is not None
    assert found.correlation == 0.0
    assert found.prompt == pytest.approx(max(0.0, 0.9 - found.prompt_seed))
    assert "not measured" in found.words


@pytest.mark.parametrize("shape", [(2, 1, 8), (2, 3, 1), (0, 3, 8)])
def test_fewer_than_two_of_anything_say_nothing(shape: tuple[int, int, int]) -> None:
    assert seed_noise(np.zeros(shape), 0.0, None) is None


def test_a_missing_score_says_nothing() -> None:
    gold = table(2, 3, 8, 0)
    gold[0, 0, 0] = math.nan
    assert seed_noise(gold, 0.0, None) is None
