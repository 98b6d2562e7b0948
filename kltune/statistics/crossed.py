"""Gold by seed, setting and prompt in, how much a mean or a difference would move on new seeds *and* new prompts out.

Seeds and prompts are both samples of what could have been drawn, and cross each other. The
variance of a mean over both is put together from mean squares, its degrees of freedom by
Satterthwaite (1946), An approximate distribution of estimates of variance components; the
construction is the quasi-F of Clark (1973), The language-as-fixed-effect fallacy. Shapes: S
seeds, K settings, P prompts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Spread:
    """An estimated variance."""

    variance: float
    df: float
    """Degrees of freedom; not whole in general."""

    @property
    def se(self) -> float:
        """Its root."""
        return float(np.sqrt(self.variance))


def mean_spread(values_SP: np.ndarray) -> Spread:
    """Variance of the mean of ``values_SP`` over new seeds and new prompts."""
    seeds, prompts = values_SP.shape
    by_seed = values_SP.mean(axis=1) - values_SP.mean()
    by_prompt = values_SP.mean(axis=0) - values_SP.mean()
    rest = values_SP - values_SP.mean() - by_seed[:, None] - by_prompt
    dfs = (seeds - 1, prompts - 1, (seeds - 1) * (prompts - 1))
    squares = (
        prompts * float((by_seed**2).sum()) / dfs[0],
        seeds * float((by_prompt**2).sum()) / dfs[1],
        float((rest**2).sum()) / dfs[2],
    )
    return _together(squares, dfs, seeds * prompts)


def pooled_spread(values_SKP: np.ndarray) -> Spread:
    """Variance of the difference of two settings' means, one for all pairs.

    What all settings of a seed or a prompt share drops out of a difference. What is left is the
    interaction of setting with seed, with prompt and with both, pooled over the settings.
    """
    seeds, settings, prompts = values_SKP.shape
    by_KS = _doubly_centred(values_SKP.mean(axis=2).T)
    by_KP = _doubly_centred(values_SKP.mean(axis=0))
    rest = values_SKP - values_SKP.mean(axis=1, keepdims=True)
    rest = (
        rest
        - rest.mean(axis=0)
        - rest.mean(axis=2, keepdims=True)
        + rest.mean(axis=(0, 2))[:, None]
    )
    dfs = (seeds - 1, prompts - 1, (seeds - 1) * (prompts - 1))
    dfs = tuple((settings - 1) * df for df in dfs)
    squares = (
        prompts * float((by_KS**2).sum()) / dfs[0],
        seeds * float((by_KP**2).sum()) / dfs[1],
        float((rest**2).sum()) / dfs[2],
    )
    return _together(squares, dfs, seeds * prompts, times=2.0)


def pair_spread(difference_SP: np.ndarray, pooled: Spread) -> tuple[Spread, bool]:
    """The variance to judge one difference by, and whether it is the pooled one.

    The pooled one, or the pair's own where that is larger: a pair that scatters little by
    luck gains nothing, and a setting that now and then collapses does not pass for as steady as
    the rest. (Simulated with one setting of three times the standard deviation, 5 seeds and 5
    settings: 5 % of repetitions with some false difference, where the pooled one alone gives 11 %.)
    """
    own = mean_spread(difference_SP)
    is_pooled = own.variance <= pooled.variance
    return (pooled if is_pooled else own), is_pooled


def _together(
    squares: tuple[float, float, float], dfs: tuple[int, ...], count: int, times: float = 1.0
) -> Spread:
    """(seed + prompt - both) / count; a negative part of it counts as none."""
    seed, prompt, both = squares
    total = seed + prompt - both
    if both >= min(seed, prompt):
        # One of the two adds nothing that can be seen beyond the noise within.
        total, df = max((seed, float(dfs[0])), (prompt, float(dfs[1])))
        return Spread(times * total / count, df)
    parts = sum(square**2 / df for square, df in zip(squares, dfs, strict=True))
    return Spread(times * total / count, total**2 / parts)


def _doubly_centred(values_AB: np.ndarray) -> np.ndarray:
    rows, columns = values_AB.mean(axis=1, keepdims=True), values_AB.mean(axis=0)
    return values_AB - rows - columns + values_AB.mean()
