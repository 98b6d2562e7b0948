"""Scores of one setting on several seeds x the same prompts in; how much seeds, prompts and chance vary out.

The layout is crossed and random both ways: score = mean + seed + prompt + rest, where the rest
is what a prompt does on this seed alone and what its samples drew; one number a cell can't
part the two. Mean squares and components by the analysis of variance (Searle, Casella & McCulloch
1992, ch. 4). With fewer than two seeds nothing is known of seeds, and the answer is none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

CONFIDENCE: Final = 0.95

FEWEST_SEEDS: Final = 4
"""Below this the correlation over seeds has no interval (Fisher's has n - 3 in it)."""

_NEAR: Final = 0.8
"""A component that one prompt less takes below this share of itself may be 0: its logarithm says nothing."""

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Component:
    """A variance in gold squared, with a 95 % interval."""

    variance: float
    """Not below 0: a negative estimate says that nothing was seen of it."""
    low: float
    high: float

    @property
    def sd(self) -> tuple[float, float, float]:
        """Standard deviation and its interval, in gold."""
        return (math.sqrt(self.variance), math.sqrt(self.low), math.sqrt(self.high))


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """What one setting's mean over prompts varies with when nothing about it is changed."""

    num_seeds: int
    num_prompts: int
    seed: Component
    """Of the mean over all prompts, between training seeds."""
    prompt: Component
    """Between prompts, on all seeds alike: how hard they are."""
    rest: Component
    """Of a prompt on one seed, beside both: interaction and the samples drawn."""
    seed_square: float
    """Variance of the seeds' means as measured: seed + rest / prompts."""

    @property
    def seed_df(self) -> int:
        """Degrees of freedom of ``seed_square``."""
        return self.num_seeds - 1

    @property
    def rest_of_mean(self) -> float:
        """Variance of a seed's mean that comes of the rest."""
        return self.rest.variance / self.num_prompts

    @property
    def smallest_difference(self) -> float:
        """Between two settings of one seed each on the same prompts: 95 % of equal pairs differ by less.

        In gold, by Student's t with the degrees of freedom of the seeds. Prompts that suit one
        setting more than the other come on top.
        """
        quantile = float(stats.t.ppf(0.5 + CONFIDENCE / 2, self.seed_df))
        return quantile * math.sqrt(2 * self.seed_square)


@dataclass(frozen=True, slots=True)
class Correlation:
    """Pearson's, with a 95 % interval."""

    value: float
    low: float
    high: float
    num_pairs: int


@dataclass(frozen=True, slots=True)
class SharedNoise:
    """What two settings have in common on the same seeds and prompts; none: not measured."""

    prompt: Correlation | None
    """Of the prompts' means over seeds: the same prompts are hard for both."""
    draw: Correlation | None
    """Of what is left of a prompt on one seed: what the same random numbers bring prompt by prompt."""
    seed: Correlation | None
    """Of the seeds' means: what they bring to a whole run."""


def noise_floor(scores_SN: Array) -> NoiseFloor | None:
    """Part the variance of ``scores_SN`` (seeds x prompts); none below two of either or at a non-finite score.

    Interval of the seeds' share: Ting, Burdick, Graybill, Jeyaratnam & Lu 1990 (modified large
    sample; normal seeds, and means over prompts, so heavy tails of prompts hardly matter). Of
    prompts and rest: jackknife over prompts (Arvesen 1969), which assumes no distribution.
    """
    if scores_SN.ndim != 2 or min(scores_SN.shape) < 2 or not np.isfinite(scores_SN).all():
        return None
    num_seeds, num_prompts = scores_SN.shape
    seed_square = float(scores_SN.mean(axis=1).var(ddof=1))
    prompt, rest = _by_jackknife(scores_SN)
    squares = (num_prompts * seed_square, rest.variance)
    low, high = _interval_of_difference(squares, (num_seeds - 1, _rest_df(scores_SN)))
    seed = max(0.0, squares[0] - squares[1]) / num_prompts
    return NoiseFloor(
        num_seeds=num_seeds,
        num_prompts=num_prompts,
        seed=Component(seed, max(0.0, low) / num_prompts, max(0.0, high) / num_prompts),
        prompt=prompt,
        rest=rest,
        seed_square=seed_square,
    )


def shared_noise(a_SN: Array, b_SN: Array) -> SharedNoise:
    """Correlate two settings that ran on the same seeds and prompts, in the same order.

    Over prompts the interval is the jackknife's of Fisher's z (heavy tails widen it); over
    seeds Fisher's own, which takes them as normal.

    Raises:
        ValueError: The two tables have different shapes.
    """
    if a_SN.shape != b_SN.shape or a_SN.ndim != 2:
        raise ValueError(f"same seeds and prompts expected, got {a_SN.shape} and {b_SN.shape}")
    num_seeds = a_SN.shape[0]
    prompt = _over_prompts(a_SN.mean(axis=0)[None], b_SN.mean(axis=0)[None])
    if num_seeds < 2:
        return SharedNoise(prompt, None, None)
    draw = _over_prompts(_rest_of(a_SN), _rest_of(b_SN))
    return SharedNoise(prompt, draw, _over_seeds(a_SN.mean(axis=1), b_SN.mean(axis=1)))


def _rest_df(scores_SN: Array) -> int:
    return (scores_SN.shape[0] - 1) * (scores_SN.shape[1] - 1)


def _rest_of(scores_SN: Array) -> Array:
    by_seed, by_prompt = scores_SN.mean(axis=1, keepdims=True), scores_SN.mean(axis=0)
    return scores_SN - by_seed - by_prompt + scores_SN.mean()


def _by_jackknife(scores_SN: Array) -> tuple[Component, Component]:
    """Components of prompts and rest with intervals from leaving out one prompt at a time."""
    num_prompts = scores_SN.shape[1]
    whole = _prompt_and_rest(scores_SN)
    if num_prompts < 3:
        return (
            Component(max(0.0, whole[0]), 0.0, math.inf),
            Component(whole[1], 0.0, math.inf),
        )
    without = np.array(
        [
            _prompt_and_rest(np.delete(scores_SN, left_out, axis=1))
            for left_out in range(num_prompts)
        ]
    )
    prompt, rest = (_log_jackknife(whole[i], without[:, i]) for i in range(2))
    return prompt, rest


def _log_jackknife(whole: float, without: Array) -> Component:
    """On the logarithm, where variances are closer to normal; as they are where they come near 0."""
    is_log = whole > 0 and bool((without > _NEAR * whole).all())
    value, values = (math.log(whole), np.log(without)) if is_log else (whole, without)
    num = len(values)
    pseudo = num * value - (num - 1) * values
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, num - 1) * pseudo.std(ddof=1) / math.sqrt(num))
    centre = float(pseudo.mean()) if is_log else value
    if is_log:
        return Component(
            whole, min(whole, math.exp(centre - half)), max(whole, math.exp(centre + half))
        )
    return Component(max(0.0, whole), max(0.0, centre - half), max(0.0, centre + half))


def _prompt_and_rest(scores_SN: Array) -> tuple[float, float]:
    num_seeds = scores_SN.shape[0]
    rest = float((_rest_of(scores_SN) ** 2).sum()) / _rest_df(scores_SN)
    between = float(scores_SN.mean(axis=0).var(ddof=1))
    return between - rest / num_seeds, rest


def _interval_of_difference(
    squares: tuple[float, float], dfs: tuple[int, int]
) -> tuple[float, float]:
    """95 % interval of E[first mean square] - E[second], by Ting et al. 1990."""
    (first, second), (n, m) = squares, dfs
    upper, lower = 0.5 + CONFIDENCE / 2, 0.5 - CONFIDENCE / 2
    g_first = 1 - n / float(stats.chi2.ppf(upper, n))
    h_first = n / float(stats.chi2.ppf(lower, n)) - 1
    g_second = 1 - m / float(stats.chi2.ppf(upper, m))
    h_second = m / float(stats.chi2.ppf(lower, m)) - 1
    f_high, f_low = (float(stats.f.ppf(q, n, m)) for q in (upper, lower))
    g_both = ((f_high - 1) ** 2 - (g_first * f_high) ** 2 - h_second**2) / f_high
    h_both = ((1 - f_low) ** 2 - (h_first * f_low) ** 2 - g_second**2) / f_low
    down = (g_first * first) ** 2 + (h_second * second) ** 2 + g_both * first * second
    up = (h_first * first) ** 2 + (g_second * second) ** 2 + h_both * first * second
    centre = first - second
    return centre - math.sqrt(max(0.0, down)), centre + math.sqrt(max(0.0, up))


def _over_prompts(a_SN: Array, b_SN: Array) -> Correlation | None:
    """Pooled over rows, with the interval of leaving out one prompt (a column) at a time."""
    num_prompts = a_SN.shape[1]
    sums = np.stack([(x * y).sum(axis=0) for x, y in _products(a_SN, b_SN)])  # [3, prompts]
    whole = _fisher(sums.sum(axis=1, keepdims=True))
    if num_prompts < 4 or whole is None:
        return None
    without = _fisher(sums.sum(axis=1, keepdims=True) - sums)
    if without is None:
        return None
    pseudo = num_prompts * whole - (num_prompts - 1) * without
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, num_prompts - 1)) * float(
        np.sqrt(pseudo.var(ddof=1) / num_prompts)
    )
    return _correlation(float(whole[0]), half, num_prompts)


def _products(a_SN: Array, b_SN: Array) -> tuple[tuple[Array, Array], ...]:
    a_SN = a_SN - a_SN.mean(axis=1, keepdims=True)
    b_SN = b_SN - b_SN.mean(axis=1, keepdims=True)
    return ((a_SN, b_SN), (a_SN, a_SN), (b_SN, b_SN))


def _fisher(sums: Array) -> Array | None:
    """Fisher's z of (cross product, squares of a, squares of b); none where one of them does not vary."""
    if (sums[1:] <= 0).any():
        return None
    ratio = sums[0] / np.sqrt(sums[1] * sums[2])
    return np.arctanh(np.clip(ratio, -1 + 1e-12, 1 - 1e-12))


def _over_seeds(a_S: Array, b_S: Array) -> Correlation | None:
    if len(a_S) < FEWEST_SEEDS:
        return None
    whole = _fisher(np.array([[(x * y).sum()] for x, y in _products(a_S[None], b_S[None])]))
    if whole is None:
        return None
    half = float(stats.norm.ppf(0.5 + CONFIDENCE / 2)) / math.sqrt(len(a_S) - 3)
    return _correlation(float(whole[0]), half, len(a_S))


def _correlation(z: float, half: float, num_pairs: int) -> Correlation:
    return Correlation(math.tanh(z), math.tanh(z - half), math.tanh(z + half), num_pairs)
