"""Variances of a gold difference and a design in; its standard error, power and smallest visible difference out.

The layout: every setting on the same S seeds, judged on the same P prompts with K samples each
(common random numbers: a seed's draws are shared by the settings). A difference of two
settings' mean gold is then the mean of a two-way table (seed x prompt), whose variance is

    2 seed (1 - correlation) / S  +  prompt / P  +  (prompt_seed + sample / K) / (S P)

(two crossed random factors, Searle, Casella & McCulloch 1992, ch. 4). It is tested by Student's t
with mean squares pooled over the settings, degrees of freedom by Satterthwaite 1946, and a
level that is divided by the number of comparisons (Bonferroni; Holm's steps see no less).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import stats

ALPHA: Final = 0.05
"""Chance of any false difference over all comparisons."""


_NORMAL: Final = 1e4
"""Degrees of freedom above which Student's t is the normal distribution."""

_QUANTILES: Final = (np.arange(400) + 0.5) / 400


@dataclass(frozen=True, slots=True)
class Noise:
    """What a difference of two settings varies with; variances, in gold squared."""

    seed: float
    """Of one setting's gold between training seeds, over all prompts."""
    seed_correlation: float
    """Of two settings' gold on the same seed: what common random numbers bring."""
    prompt: float
    """Of the difference between prompts, on all seeds alike."""
    prompt_seed: float
    """Of the difference between prompts, on each seed anew."""
    sample: float
    """Of the difference between single samples of one prompt on one seed."""

    @property
    def seed_difference(self) -> float:
        """Variance of the difference between seeds."""
        return 2 * self.seed * (1 - self.seed_correlation)


@dataclass(frozen=True, slots=True)
class Design:
    """How settings are compared."""

    seeds: int
    prompts: int
    samples: int
    """Per prompt and seed."""
    comparisons: int = 1
    """Differences that are judged together."""
    settings: int = 2
    """Settings on these seeds, over which the noise is pooled."""


def standard_error(noise: Noise, design: Design) -> float:
    """Of the mean difference over seeds and prompts, in gold."""
    return math.sqrt(sum(_parts(noise, design)))


def degrees_of_freedom(noise: Noise, design: Design) -> float:
    """Of the estimated standard error (Satterthwaite); infinite where there is no noise.

    With one seed the seeds' part can't be estimated from the runs themselves: it counts as known.
    """
    seeds, prompts, _ = _parts(noise, design)
    rest = _rest(noise, design) / (design.seeds * design.prompts)
    pooled = max(1, design.settings - 1)
    by_prompt = (prompts + rest, (design.prompts - 1) * pooled)
    by_seed = (seeds + rest, (design.seeds - 1) * pooled)
    both = (rest, (design.seeds - 1) * (design.prompts - 1) * pooled)
    squares = [by_prompt] if design.seeds == 1 else [by_prompt, by_seed, both]
    spread = sum(square**2 / max(1, df) for square, df in squares)
    total = seeds + prompts + rest
    return total**2 / spread if spread > 0 else math.inf


def power(difference: float, noise: Noise, design: Design, alpha: float = ALPHA) -> float:
    """Chance that a true ``difference`` is told from 0, whatever its sign."""
    error = standard_error(noise, design)
    if error == 0:
        return 1.0 if difference else alpha / design.comparisons
    df, limit = degrees_of_freedom(noise, design), critical(noise, design, alpha)
    shift = abs(difference) / error
    # Given the estimated error's ratio to the true one, the test is a normal one; its mean over that
    # ratio is the noncentral t, which SciPy (1.16) gives as nan at some shifts.
    ratio = np.ones(1) if df > _NORMAL else np.sqrt(stats.chi2.ppf(_QUANTILES, df) / df)
    told = stats.norm.sf(limit * ratio - shift) + stats.norm.cdf(-limit * ratio - shift)
    return float(told.mean())


def critical(noise: Noise, design: Design, alpha: float = ALPHA) -> float:
    """Standard errors that a difference must exceed to be told from 0."""
    df = degrees_of_freedom(noise, design)
    tail = alpha / (2 * design.comparisons)
    return float(stats.norm.isf(tail) if df > _NORMAL else stats.t.isf(tail, df))


def detectable(noise: Noise, design: Design, wanted: float = 0.8, alpha: float = ALPHA) -> float:
    """The smallest true difference that is told from 0 with chance ``wanted``, in gold."""
    high = standard_error(noise, design)
    if high == 0:
        return 0.0
    while power(high, noise, design, alpha) < wanted:
        high *= 2
    low = 0.0
    for _ in range(24):
        middle = (low + high) / 2
        if power(middle, noise, design, alpha) < wanted:
            low = middle
        else:
            high = middle
    return high


def _parts(noise: Noise, design: Design) -> tuple[float, float, float]:
    """Variance of the mean difference by seeds, by prompts, and by what is anew in each cell."""
    return (
        noise.seed_difference / design.seeds,
        noise.prompt / design.prompts,
        _rest(noise, design) / (design.seeds * design.prompts),
    )


def _rest(noise: Noise, design: Design) -> float:
    return noise.prompt_seed + noise.sample / design.samples
