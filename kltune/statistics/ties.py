"""Scores of settings by prompt in; groups of settings that can't be told apart out.

One bound covers the differences of all pairs at once (Tukey 1953; by simulation, kltune.statistics.chance). A
setting that no other one is above by more than the bound may be the best: these are the
first group, as in multiple comparisons with the best (Hsu 1996, ch. 4), but with all ties kept
and not only one of them. The lower groups are made the same way of what is left. So the
groups say this, all of it together with 95 % confidence: **each setting of a lower group is worse
than the best one of every group above it**, whichever that is. Two settings of one group are
never ordered, and of two settings in different groups nothing is said unless every pair
across is told apart (`Groups.is_gap`).

A difference varies with the prompts (paired) and, where the same setting was run on several
seeds, with the seeds: that variance has few degrees of freedom, which widens the bound
(Satterthwaite 1946). It is taken as the same for all settings and independent between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kltune.statistics.chance import largest_of_all_pairs, paired_variance
from kltune.statistics.contrast import FEWEST_PROMPTS
from kltune.statistics.variance import NoiseFloor

CONFIDENCE: Final = 0.95

_ERROR: Final = 0.04
"""What the bound is asked for: with 64 prompts the measured covariance makes 5 % of it at most (simulated)."""

FEWEST_DIFFERING: Final = 3
"""Prompts whose score differs, below which a pair is not told apart, whatever its interval."""

FEWEST_SEED_DF: Final = 4
"""Degrees of freedom of the seeds below which theirs are the pair's: with fewer, a variance that came out
small by chance would raise them (simulated: 9 % false differences with 3 seeds)."""

_ZERO: Final = 1e-9
"""A difference below this is rounding."""

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Groups:
    """A partition of the settings, best first; indices in rising order, which is no rank."""

    groups: tuple[tuple[int, ...], ...]
    is_gap: tuple[bool, ...]
    """For each group but the last: whether all of it are better than all below, each pair told apart."""
    most_below_best: tuple[float, ...]
    """By setting: the most by which the best of all can be above it, in score, with 95 % confidence."""
    half_width: Array
    """[settings, settings]: of the interval of a difference, 95 % for all pairs together."""
    num_prompts: int
    seed_df: int | None
    """Degrees of freedom of the seeds' variance; none: it is not known, and not in the bounds."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """What is known of each pair, [settings, settings]: row minus column."""

    difference: Array
    se: Array
    df: Array
    is_sound: NDArray[np.bool_]
    """Whether the prompts can tell anything of the pair's noise."""


def tie_groups(
    scores_MP: Array,
    values_M: Array | None = None,
    floor: NoiseFloor | None = None,
    *,
    seed: int = 0,
) -> Groups:
    """Group settings by their scores on the same prompts.

    ``values_M`` are their values where these are not the plain means. ``floor`` is the noise
    floor of one of them. ``seed`` is for the draws of chance.

    Raises:
        ValueError: Fewer than two prompts, or a score that is not finite.
    """
    if scores_MP.ndim != 2 or scores_MP.shape[1] < 2 or not np.isfinite(scores_MP).all():
        raise ValueError(f"finite scores of two prompts or more expected, got {scores_MP.shape}")
    num_settings, num_prompts = scores_MP.shape
    values = scores_MP.mean(axis=1) if values_M is None else np.asarray(values_M, dtype=float)
    seed_df = None if floor is None else floor.seed_df
    if num_settings < 2:
        alone = np.zeros((num_settings,) * 2)
        return Groups(
            ((0,),) * num_settings, (), (0.0,) * num_settings, alone, num_prompts, seed_df
        )
    pairs = _pairs(scores_MP, values, floor)
    bound = largest_of_all_pairs(scores_MP, floor, _ERROR, seed).at(pairs.df)
    is_better = pairs.is_sound & (pairs.difference > bound * pairs.se)
    groups = _partition(is_better)
    gaps = tuple(
        bool(is_better[np.ix_(group, np.concatenate(groups[n + 1 :]))].all())
        for n, group in enumerate(groups[:-1])
    )
    return Groups(
        groups=tuple(tuple(int(i) for i in group) for group in groups),
        is_gap=gaps,
        most_below_best=tuple(_most_below(pairs, groups[0], bound).tolist()),
        half_width=bound * pairs.se,
        num_prompts=num_prompts,
        seed_df=seed_df,
    )


def _pairs(scores_MP: Array, values: Array, floor: NoiseFloor | None) -> Pairs:
    num_prompts = scores_MP.shape[1]
    spread = paired_variance(scores_MP) / num_prompts
    df = np.full_like(spread, num_prompts - 1.0)
    if floor is not None:
        spread, df = _with_seeds(spread, num_prompts, floor)
    se = np.sqrt(spread)
    is_sound = _differ_enough(scores_MP) & (se > _ZERO) & (num_prompts >= FEWEST_PROMPTS)
    return Pairs(values[:, None] - values[None], se, df, is_sound)


def _with_seeds(spread: Array, num_prompts: int, floor: NoiseFloor) -> tuple[Array, Array]:
    """Variance and degrees of freedom of a difference of two runs on one seed each.

    var(D) = [interaction with prompts] / P + 2 x [variance of a seed's mean]. The paired spread
    holds the first part and 2 x rest / P, which is in the second part too: it is counted once.
    """
    drawn = 2 * floor.rest_of_mean
    of_prompts = np.maximum(spread - drawn, 0.0)
    of_seeds = 2 * max(floor.seed_square, floor.rest_of_mean)
    total = of_prompts + of_seeds
    if floor.seed_df < FEWEST_SEED_DF or of_seeds <= 0:
        return total, np.full_like(total, float(floor.seed_df))
    df = total**2 / (of_prompts**2 / (num_prompts - 1) + of_seeds**2 / floor.seed_df)
    return total, df


def _differ_enough(scores_MP: Array) -> NDArray[np.bool_]:
    """Which pairs differ on as many prompts as it takes; a few prompts show it for nearly all."""
    count = np.zeros((len(scores_MP),) * 2, dtype=np.int16)
    oneself = np.eye(len(scores_MP), dtype=np.bool_)
    for scores in scores_MP.T:
        count += np.abs(scores[:, None] - scores[None]) > _ZERO
        if bool(((count >= FEWEST_DIFFERING) | oneself).all()):
            break
    return count >= FEWEST_DIFFERING


def _partition(is_better: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """Peel off, again and again, whatever nothing that is left is better than."""
    left = np.arange(len(is_better))
    groups: list[NDArray[np.int64]] = []
    while len(left):
        is_beaten = is_better[np.ix_(left, left)].any(axis=0)
        groups.append(left[~is_beaten])
        left = left[is_beaten]
    return groups


def _most_below(pairs: Pairs, first: NDArray[np.int64], bound: Array) -> Array:
    """Upper limit of (best - setting), since the best is in the first group (Hsu 1996, ch. 4)."""
    reach = pairs.difference[first] + bound[first] * pairs.se[first]
    reach[np.arange(len(first)), first] = 0.0
    return np.maximum(reach.max(axis=0), 0.0)
