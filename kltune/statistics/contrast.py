"""Two means in, their difference with an interval out: on the same prompts, on different ones, or from two intervals.

The noise of training seeds is added where both sides have it measured; its few degrees of freedom
widen the interval (Satterthwaite 1946). ``comparisons`` intervals hold at once (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

CONFIDENCE: Final = 0.95

FEWEST_DIFFERING: Final = 3
"""Prompts whose scores differ, below which a pair is not told apart, whatever its interval."""

FEWEST_PROMPTS: Final = 8
"""Prompts below which no interval is told: half-right scores of 0 and 1 all agree by chance in 2 x 0.5^N of cases,
under 1 % from 8 on, and below 8 Student's t leans on a spread that so few hardly measure."""

_ROUNDING: Final = 1e-9

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SeedNoise:
    """Variance of a mean over prompts from seed to seed, in score squared."""

    variance: float
    df: int


@dataclass(frozen=True, slots=True)
class Contrast:
    """The first mean minus the second."""

    difference: float
    low: float
    high: float
    is_paired: bool
    is_told_apart: bool
    """Whether the interval leaves out 0 and the scores can tell their own noise."""

    @property
    def has_interval(self) -> bool:
        """Whether the scores say anything of the noise: the same run twice differs nowhere."""
        return self.high > self.low


def paired(
    a_N: Floats, b_N: Floats, *, comparisons: int = 1, seeds: Sequence[SeedNoise] = ()
) -> Contrast:
    """Scores of both on the same N prompts (two or more), in the same order."""
    difference_N = a_N - b_N
    num_differing = int((np.abs(difference_N) > _ROUNDING).sum())
    prompts = (float(difference_N.var(ddof=1)) / len(difference_N), len(difference_N) - 1)
    parts = [prompts, *((noise.variance, noise.df) for noise in seeds)]
    can_tell = num_differing >= FEWEST_DIFFERING
    return _contrast(float(difference_N.mean()), parts, comparisons, True, can_tell)


def unpaired(
    a_N: Floats, b_M: Floats, *, comparisons: int = 1, seeds: Sequence[SeedNoise] = ()
) -> Contrast:
    """Scores on N and on M other prompts, two or more of each (Welch 1947)."""
    parts = [(float(x.var(ddof=1)) / len(x), len(x) - 1) for x in (a_N, b_M)]
    parts += [(noise.variance, noise.df) for noise in seeds]
    return _contrast(float(a_N.mean() - b_M.mean()), parts, comparisons, False, True)


def of_intervals(
    a: tuple[float, float, float], b: tuple[float, float, float]
) -> tuple[float, float, float]:
    """Difference of two independent estimates from (estimate, low, high) of each, with its own low and high.

    Each side's distance to its limit is taken for its error on that side (Zou & Donner 2008).
    """
    difference = a[0] - b[0]
    low = difference - math.hypot(a[0] - a[1], b[2] - b[0])
    high = difference + math.hypot(a[2] - a[0], b[0] - b[1])
    return difference, low, high


def mean_interval(scores_N: Floats) -> tuple[float, float]:
    """95 % interval of one mean over prompts, by Student's t; two scores or more."""
    half = half_width(float(scores_N.std(ddof=1)) / math.sqrt(len(scores_N)), len(scores_N))
    mean = float(scores_N.mean())
    return mean - half, mean + half


def no_interval(num_prompts: int, *, is_spread: bool = True) -> str:
    """Why so many prompts give no interval, for a reader; empty where they give one.

    ``is_spread``: whether their scores differ from one another.
    """
    if num_prompts < FEWEST_PROMPTS:
        noun = "1 prompt is" if num_prompts == 1 else f"{num_prompts} prompts are"
        return f"{noun} too few for an interval"
    return "" if is_spread else f"all {num_prompts} prompts equal: no interval"


def half_width(se: float, num_prompts: int) -> float:
    """Half the 95 % interval of a mean over prompts from its standard error, by Student's t; nan for one prompt."""
    return (
        float(stats.t.ppf(0.5 + CONFIDENCE / 2, num_prompts - 1)) * se
        if num_prompts > 1
        else math.nan
    )


def _contrast(
    difference: float,
    parts: Sequence[tuple[float, int]],
    comparisons: int,
    is_paired: bool,
    can_tell: bool,
) -> Contrast:
    variance = sum(part for part, _ in parts)
    spread = sum(part**2 / df for part, df in parts)
    if variance <= _ROUNDING**2 or spread == 0:
        return Contrast(difference, difference, difference, is_paired, is_told_apart=False)
    df = variance**2 / spread
    quantile = float(stats.t.ppf(1 - (1 - CONFIDENCE) / (2 * comparisons), df))
    half = quantile * math.sqrt(variance)
    low, high = difference - half, difference + half
    return Contrast(difference, low, high, is_paired, can_tell and (low > 0 or high < 0))
