"""The same settings judged twice, prompt by prompt, in; whether their ranking agrees out.

Noise of prompts hides agreement, and the same prompts on both sides can feign it: ranks on one
half of the prompts are compared with ranks on the other half, and what the halves of one study
agree with each other says how much noise hides (Spearman 1904, correction for attenuation).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import stats

from kltune.statistics.drift import CONFIDENCE, Array, Interval

FEWEST_SETTINGS: Final = 6
"""Settings below which a rank correlation has no useful interval."""
FEWEST_PROMPTS: Final = 8
LEAST_RELIABLE: Final = 0.2
"""Agreement of a study with itself below which there is no ranking to compare."""
_SPLITS: Final = 100
_SPEARMAN: Final = 1.06
"""Variance of the z-transformed rank correlation is this over (settings - 3) (Fieller, Hartley &
Pearson 1957)."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How two studies rank the same settings."""

    correlation: Interval
    """Spearman's, of the values without the noise of prompts; the ends give room for settings that
    were not tried and for not knowing the noise."""
    observed: float
    """The same as observed, half of the prompts against the other half."""
    reliability: tuple[float, float]
    """Spearman's correlation of each study with itself, half against half."""
    num_settings: int
    num_pairs: int
    """Pairs of settings with different values in both."""
    num_alike: int
    """Of them in the same order in both, over all prompts."""


def rank_agreement(scores_a: Array, scores_b: Array, seed: int) -> Agreement | None:
    """Compare ``[settings, prompts]`` scores of the same settings on the same prompts.

    A row's mean is the setting's value. The interval is Fisher's z with Student's t for the
    settings as a sample of the search space; its lower end is divided by the highest
    reliability that the halves allow and its upper end by the lowest, so that it is too wide
    rather than too narrow. None with fewer than `FEWEST_SETTINGS` or `FEWEST_PROMPTS`.
    """
    num_settings, num_prompts = scores_a.shape
    if num_settings < FEWEST_SETTINGS or num_prompts < FEWEST_PROMPTS:
        return None
    observed, own_a, own_b = _half_correlations(scores_a, scores_b, seed)
    low, high = _fisher(observed, num_settings)
    ends = [_fisher(own, num_settings) for own in (own_a, own_b)]
    least = math.sqrt(max(ends[0][0], 0.0) * max(ends[1][0], 0.0))
    most = math.sqrt(max(ends[0][1], 0.0) * max(ends[1][1], 0.0))
    middle = math.sqrt(max(own_a, 0.0) * max(own_b, 0.0))
    is_known = min(own_a, own_b) >= LEAST_RELIABLE
    correlation = Interval(
        _bounded(observed / middle) if is_known else None,
        _bounded(_over(low, most if low > 0 else least)),
        _bounded(_over(high, least if high > 0 else most)),
    )
    pairs, alike = _orders(scores_a.mean(axis=1), scores_b.mean(axis=1))
    return Agreement(correlation, observed, (own_a, own_b), num_settings, pairs, alike)


def _half_correlations(a: Array, b: Array, seed: int) -> tuple[float, float, float]:
    """Mean over random halvings of the prompts: a with b, a with itself, b with itself."""
    rng = np.random.default_rng(seed)
    num_prompts = a.shape[1]
    found: list[tuple[float, float, float]] = []
    for _ in range(_SPLITS):
        order = rng.permutation(num_prompts)
        first, second = order[: num_prompts // 2], order[num_prompts // 2 :]
        a_1, a_2, b_1, b_2 = (
            _centred_ranks(x[:, half].mean(axis=1)) for x in (a, b) for half in (first, second)
        )
        across = (float(a_1 @ b_2) + float(a_2 @ b_1)) / 2
        found.append((across, float(a_1 @ a_2), float(b_1 @ b_2)))
    across, own_a, own_b = np.mean(found, axis=0)
    return float(across), float(own_a), float(own_b)


def _centred_ranks(values: Array) -> Array:
    """Ranks of mean 0 and length 1, so that a product is Spearman's correlation; 0 where all tie."""
    ranks = stats.rankdata(values) - (len(values) + 1) / 2
    length = float(np.sqrt((ranks**2).sum()))
    return ranks / length if length > 0 else ranks


def _fisher(correlation: float, count: int) -> tuple[float, float]:
    z = math.atanh(min(max(correlation, -0.9999), 0.9999))
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, count - 2)) * math.sqrt(_SPEARMAN / (count - 3))
    return math.tanh(z - half), math.tanh(z + half)


def _over(value: float, divisor: float) -> float:
    return math.copysign(1.0, value) if divisor <= abs(value) else value / divisor


def _bounded(value: float) -> float:
    return min(max(value, -1.0), 1.0)


def _orders(a: Array, b: Array) -> tuple[int, int]:
    """Pairs of settings without a tie, and how many of them both put in the same order."""
    i, j = np.triu_indices(len(a), 1)
    product = np.sign(a[i] - a[j]) * np.sign(b[i] - b[j])
    return int((product != 0).sum()), int((product > 0).sum())
