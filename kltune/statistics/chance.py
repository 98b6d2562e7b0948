"""Scores by prompt in; how large the largest of many differences gets by chance alone out.

The settings' errors are drawn together, so that settings that go with each other over the
prompts count as the few that they are: normal draws with the measured covariance (the
multiplier bootstrap, Chernozhukov, Chetverikov & Kato 2013). The bound is then widened for
standard errors that are themselves estimates: each pair's from its prompts on its own (by the
quantile of Student's t at the same tail), and those of seeds for all pairs at once (by a common root
mean square, as in the multivariate t of Dunnett 1955 and Tukey 1953).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from kltune.statistics.variance import NoiseFloor

NUM_DRAWS: Final = 2000
"""Of all errors together; a 4 % bound is good to about 0.05 standard errors with them."""
NUM_DRAWS_MANY: Final = 1000
"""The same above `MANY` settings."""
MANY: Final = 200

_DFS: Final = np.array([1, 1.5, 2, 3, 4, 6, 9, 14, 24, 48, 96, 1e6])
"""Degrees of freedom at which a bound is reckoned; between them by the reciprocal."""

_ROUNDING: Final = 1e-10
"""Share of two settings' variances below which that of their difference is none."""

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Bound:
    """In standard errors."""

    alone: float
    """Where every pair's standard error is that of its prompts."""
    by_df: Array | None
    """Where seeds are in it, at each of _DFS."""

    def at(self, df: Array) -> Array:
        """The bound of pairs with ``df`` degrees of freedom (looked at only where seeds are in it)."""
        if self.by_df is None:
            return np.full_like(df, self.alone)
        return np.interp(1 / df, 1 / _DFS[::-1], self.by_df[::-1])


def paired_variance(scores_MP: Array) -> Array:
    """Variance over prompts of the difference of each pair; exactly 0 where it is but rounding."""
    covariance = np.atleast_2d(np.cov(scores_MP))
    both = np.diag(covariance)[:, None] + np.diag(covariance)[None]
    variance = both - 2 * covariance
    return np.where(variance > _ROUNDING * both, variance, 0.0)


def largest_of_all_pairs(
    scores_MP: Array, floor: NoiseFloor | None, error: float, seed: int
) -> Bound:
    """What the largest of all differences exceeds, either way round, with chance ``error`` if all are equal.

    Errors of prompts and, where ``floor`` has them, of seeds. ``seed`` is for the draws.
    """
    rng = np.random.default_rng(seed)
    error_DM, scale_MM = _draw_errors(scores_MP, floor, rng)
    largest_D = np.zeros(len(error_DM), dtype=np.float32)
    for setting in range(error_DM.shape[1] - 1):
        apart = error_DM[:, setting + 1 :] - error_DM[:, setting : setting + 1]
        apart *= scale_MM[setting, setting + 1 :]
        np.maximum(largest_D, np.abs(apart, out=apart).max(axis=1), out=largest_D)
    normal = float(np.quantile(largest_D, 1 - error))
    alone = float(stats.t.isf(stats.norm.sf(normal), scores_MP.shape[1] - 1))
    if floor is None:
        return Bound(alone, None)
    widened = alone / max(normal, 1e-9)
    divisor_DF = np.sqrt(np.stack([rng.chisquare(df, len(largest_D)) / df for df in _DFS], axis=1))
    shared = np.quantile(largest_D[:, None] / divisor_DF, 1 - error, axis=0)
    return Bound(alone, shared * widened)


def _draw_errors(
    scores_MP: Array, floor: NoiseFloor | None, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Draws of the settings' errors, and what turns the difference of a pair into standard errors."""
    num_settings, num_prompts = scores_MP.shape
    num_draws = NUM_DRAWS if num_settings <= MANY else NUM_DRAWS_MANY
    centred = scores_MP - scores_MP.mean(axis=1, keepdims=True)
    per_mean = num_prompts * (num_prompts - 1)
    weights = rng.standard_normal((num_draws, num_prompts), dtype=np.float32)
    error_DM = weights @ (centred.T / np.sqrt(per_mean)).astype(np.float32)
    spread = paired_variance(scores_MP) / num_prompts
    if floor is not None:
        of_seed = floor.seed.variance
        spread = spread + 2 * of_seed
        error_DM += np.float32(np.sqrt(of_seed)) * rng.standard_normal(
            error_DM.shape, dtype=np.float32
        )
    # The draws are measured by their own spread: a bound is in standard errors.
    se = np.sqrt(spread)
    scale_MM = np.divide(1.0, se, out=np.zeros_like(se), where=se > 0).astype(np.float32)
    return error_DM, scale_MM
