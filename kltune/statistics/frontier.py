"""Trials with their betas in; whether all lie on one gold-KL frontier, out.

Gao et al. 2022 found that a KL penalty moves a run along the frontier and not off it: then beta
is only a way of reaching a KL, as stopping early is. A beta that changes the frontier gives more
gold at the same KL, and is worth finding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import stats

from kltune.statistics.law import FEWEST_PROMPTS, LawPoints, point_weights
from kltune.statistics.law_errors import Floats
from kltune.statistics.law_pooled import Design, pooled_coefficients, shared_points

FEWEST_TRIALS: Final = 8
FEWEST_BETAS: Final = 3
LEVEL: Final = 0.05


@dataclass(frozen=True, slots=True)
class Frontier:
    """How much gold at the same KL goes with beta."""

    gain: float
    """Gold of the highest beta over the lowest one, at ``kl``, on a line over the ranks of beta; nan: not tested."""
    low: float
    high: float
    """95 % interval."""
    p_value: float
    """How often betas on one frontier would differ by as much; nan: not tested."""
    kl: float
    """Nats per sequence at which the gain is given: the median of all evaluations."""
    num_trials: int
    num_betas: int

    @property
    def is_tested(self) -> bool:
        """Whether there were trials and betas enough."""
        return math.isfinite(self.p_value)

    @property
    def is_one(self) -> bool | None:
        """False where betas are off one frontier, True where that can't be told; None: not tested."""
        return self.p_value >= LEVEL if self.is_tested else None


def compare_frontiers(trials: Sequence[LawPoints], betas: Sequence[float]) -> Frontier:
    """Test whether gold at the same KL goes up or down with beta.

    The frontier common to all is no law but a bend of four terms, so that betas which reach other
    KLs are not mistaken for betas on another frontier. Over it, gold may rise or fall with d times
    the rank of beta (0 is the lowest). Errors are clustered by prompt and by trial. Blind to
    betas that differ without order, and where each beta keeps to a KL of its own.
    """
    used, everything = shared_points(trials)
    kept = {id(points) for points in used}
    own = [beta for points, beta in zip(trials, betas, strict=True) if id(points) in kept]
    num_betas = len(set(own))
    kl = float(np.median(everything.d_P)) ** 2 if len(everything.d_P) else math.nan
    untested = Frontier(math.nan, math.nan, math.nan, math.nan, kl, len(used), num_betas)
    is_enough = len(used) >= FEWEST_TRIALS and num_betas >= FEWEST_BETAS
    if not is_enough or everything.gain_PN.shape[1] < FEWEST_PROMPTS:
        return untested
    middle = math.sqrt(kl)
    rank_T = stats.rankdata(own, method="dense") - 1
    rank_T = rank_T / rank_T.max() - 0.5
    roots = [point_weights(points.d_P, middle)[:, None] for points in used]
    bases = tuple(
        root_P1 * _basis(points.d_P / middle, rank)
        for root_P1, points, rank in zip(roots, used, rank_T, strict=True)
    )
    if np.linalg.matrix_rank(np.concatenate(bases), tol=1e-6) < bases[0].shape[1]:
        return untested
    gains = tuple(root_P1 * points.gain_PN for root_P1, points in zip(roots, used, strict=True))
    found = pooled_coefficients(Design(bases, gains))
    of_beta = found.interval(np.array([0.0, 0.0, 0.0, 0.0, 1.0]))
    return Frontier(
        of_beta.value, of_beta.low, of_beta.high, found.p_value(4), kl, len(used), num_betas
    )


def _basis(d_P: Floats, rank: float) -> Floats:
    """The common bend, and what beta adds; d in units of its median."""
    log_P = np.log(d_P)
    return np.stack([d_P, d_P * log_P, d_P * log_P**2, d_P**2, d_P * rank], axis=1)
