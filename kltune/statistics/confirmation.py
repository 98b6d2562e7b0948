"""Gold of several settings on the same fresh seeds and prompts in, which can be told from the first out.

One setting, the control, is the one that a search recommends; it is compared with every other.
Intervals hold all at once (Dunnett) and cover new seeds as well as new prompts
(kltune.statistics.crossed). Shapes: S seeds, K settings, P prompts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from kltune.statistics.crossed import Spread, mean_spread, pair_spread, pooled_spread
from kltune.statistics.dunnett import adjusted_p, critical
from kltune.statistics.shrinkage import Shrunk, shrink

CONFIDENCE = 0.95
POWER = 0.8
"""With which the least difference that a design can see is seen."""

Verdict = Literal["stays", "changes", "tied"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The control minus another setting."""

    difference: float
    low: float
    high: float
    """Interval over new seeds and prompts; in a family all hold at once."""
    se: float
    df: float
    p: float
    """Adjusted for the number of comparisons."""
    is_pooled: bool
    """Whether the variance is that of all settings; else the pair's own, which is larger."""
    seeds_above: int
    """Seeds in which the control is the higher of the two."""
    seeds: int

    @property
    def is_told_apart(self) -> bool:
        """Whether the interval leaves out 0; without any scatter nothing is known of the noise."""
        return self.se > 0 and (self.low > 0 or self.high < 0)


@dataclass(frozen=True, slots=True)
class Standing:
    """One setting by itself."""

    mean: float
    low: float
    high: float
    """95 % interval over new seeds and prompts, for this setting alone."""
    seed_sd: float
    """Standard deviation of its mean over prompts from seed to seed."""
    by_seed: tuple[float, ...]
    shrunk: float
    """The mean drawn towards that of all settings."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What fresh seeds and prompts say about K settings."""

    standings: tuple[Standing, ...]
    comparisons: tuple[Comparison, ...]
    """Of the control with settings 1, 2, ...; one less than standings."""
    least_detectable: float
    """True difference that this design tells apart in 8 of 10 repetitions."""
    shrunk_share: float
    shrunk_method: str

    @property
    def verdict(self) -> Verdict:
        """``changes``: some setting is told to be better; ``stays``: the control is than all others; ``tied``."""
        if any(c.is_told_apart and c.difference < 0 for c in self.comparisons):
            return "changes"
        return "stays" if all(c.is_told_apart for c in self.comparisons) else "tied"

    @property
    def winner(self) -> int:
        """The setting to use: the control, unless others are told to be better; then the highest of those."""
        better = [
            k
            for k, c in enumerate(self.comparisons, start=1)
            if c.is_told_apart and c.difference < 0
        ]
        return max(better, key=lambda k: self.standings[k].mean, default=0)


def confirm(values_SKP: np.ndarray, confidence: float = CONFIDENCE) -> Confirmation:
    """Compare setting 0 of ``values_SKP`` with every other.

    Raises:
        ValueError: a design that can't tell anything (fewer than 2 seeds, settings or prompts).
    """
    seeds, settings, prompts = values_SKP.shape
    if min(seeds, settings, prompts) < 2:
        raise ValueError(
            f"needs at least 2 seeds, settings and prompts (got {seeds}, {settings}, {prompts})"
        )
    pooled = pooled_spread(values_SKP)
    comparisons = tuple(
        _compare(values_SKP[:, 0] - values_SKP[:, k], pooled, settings - 1, confidence)
        for k in range(1, settings)
    )
    means_K = values_SKP.mean(axis=(0, 2))
    shrunk = shrink(means_K, pooled.variance / 2, pooled.df)
    return Confirmation(
        standings=tuple(_standing(values_SKP[:, k], shrunk, k) for k in range(settings)),
        comparisons=comparisons,
        least_detectable=float(np.mean([_least(c) for c in comparisons])),
        shrunk_share=shrunk.share,
        shrunk_method=shrunk.method,
    )


def compare_pair(difference_SP: np.ndarray, confidence: float = CONFIDENCE) -> Comparison:
    """One difference by its own scatter, for no family but itself."""
    return _judged(difference_SP, mean_spread(difference_SP), False, 1, confidence)


def sign_flip_smallest_p(seeds: int) -> float:
    """Smallest two-sided p that a sign-flip test over ``seeds`` paired differences can give.

    All 2^S patterns of signs are as likely as the one seen, and it and its mirror are the most extreme: 5
    seeds give 1/16 at best, so such a test can't reject at 5 %.
    """
    return 2.0 / 2**seeds


def power(true_difference: float, se: float, df: float, limit: float) -> float:
    """Chance that a difference is told apart: t noncentral about ``true_difference / se``."""
    shift = true_difference / se
    above = stats.nct.sf(limit, df, shift)
    return float(above + stats.nct.cdf(-limit, df, shift))


def _least(one: Comparison) -> float:
    """Difference whose estimate is beyond half the interval's width with `POWER`."""
    return (one.high - one.low) / 2 + float(stats.t.ppf(POWER, one.df)) * one.se


def _compare(
    difference_SP: np.ndarray, pooled: Spread, comparisons: int, confidence: float
) -> Comparison:
    spread, is_pooled = pair_spread(difference_SP, pooled)
    return _judged(difference_SP, spread, is_pooled, comparisons, confidence)


def _judged(
    difference_SP: np.ndarray, spread: Spread, is_pooled: bool, comparisons: int, confidence: float
) -> Comparison:
    mean = float(difference_SP.mean())
    half = critical(comparisons, spread.df, confidence) * spread.se
    by_seed = difference_SP.mean(axis=1)
    return Comparison(
        difference=mean,
        low=mean - half,
        high=mean + half,
        se=spread.se,
        df=spread.df,
        p=adjusted_p(mean / spread.se, comparisons, spread.df) if spread.se > 0 else 1.0,
        is_pooled=is_pooled,
        seeds_above=int((by_seed > 0).sum()),
        seeds=len(by_seed),
    )


def _standing(values_SP: np.ndarray, shrunk: Shrunk, k: int) -> Standing:
    own = stand(values_SP)
    return Standing(own.mean, own.low, own.high, own.seed_sd, own.by_seed, shrunk.values[k])


def stand(values_SP: np.ndarray, confidence: float = CONFIDENCE) -> Standing:
    """A setting by itself; nothing is there to shrink towards."""
    spread = mean_spread(values_SP)
    mean = float(values_SP.mean())
    half = float(stats.t.ppf((1 + confidence) / 2, spread.df)) * spread.se
    by_seed = values_SP.mean(axis=1)
    return Standing(
        mean=mean,
        low=mean - half,
        high=mean + half,
        seed_sd=float(by_seed.std(ddof=1)),
        by_seed=tuple(float(v) for v in by_seed),
        shrunk=mean,
    )
