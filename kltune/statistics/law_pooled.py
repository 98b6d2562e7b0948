"""All trials of a study in; one over-optimisation law for them together, out.

Trials share their prompts and each run wanders in its own way, so an error comes from two sides:
prompts (the same in every trial) and trials (the same for every prompt). Both are clusters
(two-way, Cameron, Gelbach & Miller 2011): nothing is assumed on how an evaluation depends on the
one before it. The trials' part is the jackknife over whole trials, which does not shrink where
one trial reaches much further than the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import special

from kltune.statistics.law import (
    FEWEST_PROMPTS,
    LawFit,
    LawForm,
    LawPoints,
    judge_law,
    law_basis,
    no_fit,
    point_weights,
)
from kltune.statistics.law_errors import Coefficients, Floats, residuals_of

FEWEST_TRIALS: Final = 6
"""Of which errors between trials can be told."""


_MOST_STRETCHES: Final = 5
_TRIALS_PER_STRETCH: Final = 4


@dataclass(frozen=True, slots=True)
class Design:
    """Several trials ready for least squares: a basis and the gains of each, by the root of the weights."""

    bases: tuple[Floats, ...]
    gains: tuple[Floats, ...]


def fit_pooled_law(trials: Sequence[LawPoints], form: LawForm) -> LawFit:
    """Fit one law to all evaluations of all trials; trials differ from it by chance.

    Where settings differ in their laws this is the law of the average trial. It is rejected where
    gold bends with log d (RL) or d (best-of-n) in another way, or where it is off the law over
    some stretch of d, beyond what prompts and trials explain; each test has half of the level.
    """
    used, all_points = shared_points(trials)
    if len(used) < FEWEST_TRIALS or all_points.gain_PN.shape[1] < FEWEST_PROMPTS:
        return no_fit(all_points, form)
    middle = float(np.median(all_points.d_P))
    bent = _design(used, form, 3, middle)
    if np.linalg.matrix_rank(np.concatenate(bent.bases), tol=1e-6) < 3:
        return no_fit(all_points, form)
    law = Design(tuple(x_PC[:, :2] for x_PC in bent.bases), bent.gains)
    found = pooled_coefficients(law)
    p_value = min(1.0, 2 * min(pooled_coefficients(bent).p_value(2), _stretches_p(law, used)))
    return judge_law(found, p_value, all_points, form, _run_sd(law))


def shared_points(trials: Sequence[LawPoints]) -> tuple[list[LawPoints], LawPoints]:
    """The trials on the commonest set of prompts, and all their evaluations in one."""
    sizes = [points.gain_PN.shape[1] for points in trials if len(points.d_P)]
    if not sizes:
        return [], LawPoints(np.empty(0), np.empty((0, 0)))
    size = max(sizes, key=lambda n: (sizes.count(n), n))
    used = [points for points in trials if len(points.d_P) and points.gain_PN.shape[1] == size]
    d_A = np.concatenate([points.d_P for points in used])
    return used, LawPoints(d_A, np.concatenate([points.gain_PN for points in used]))


@dataclass(frozen=True, slots=True)
class Gap:
    """Where gold is off a law."""

    kl_low: float
    kl_high: float
    """Nats per sequence."""
    gold: float
    """Mean of gold less the law."""


def largest_gap(trials: Sequence[LawPoints], fit: LawFit) -> Gap | None:
    """The fifth of the evaluations, in order of KL, whose mean is furthest off the law; None without a fit."""
    used, everything = shared_points(trials)
    if fit.a is None or len(everything.d_P) < _MOST_STRETCHES or not used:
        return None
    off_A = everything.gain_PN.mean(axis=1) - fit.gain(everything.d_P)
    stretches = np.array_split(np.argsort(everything.d_P, kind="stable"), _MOST_STRETCHES)
    worst = max(stretches, key=lambda members: abs(float(off_A[members].mean())))
    d_A = everything.d_P[worst]
    return Gap(float(d_A.min() ** 2), float(d_A.max() ** 2), float(off_A[worst].mean()))


def pooled_coefficients(design: Design) -> Coefficients:
    """Least squares over all trials; errors clustered by prompt and by trial."""
    num_trials, num_prompts = len(design.bases), design.gains[0].shape[1]
    gram_TCC = np.stack([x_PC.T @ x_PC for x_PC in design.bases])
    cross_TCN = np.stack(
        [x_PC.T @ y_PN for x_PC, y_PN in zip(design.bases, design.gains, strict=True)]
    )
    solve_CC = np.linalg.pinv(gram_TCC.sum(axis=0))
    own_CN = solve_CC @ cross_TCN.sum(axis=0)
    value_C = own_CN.mean(axis=1)
    prompts_CC = np.atleast_2d(np.cov(own_CN)) / num_prompts
    left_TCC = gram_TCC.sum(axis=0) - gram_TCC
    cross_TC = cross_TCN.mean(axis=2)
    others_TC = (np.linalg.pinv(left_TCC) @ (cross_TC.sum(axis=0) - cross_TC)[..., None])[..., 0]
    off_TC = others_TC - value_C
    trials_CC = (num_trials - 1) / num_trials * off_TC.T @ off_TC
    both_CC = _both(solve_CC, gram_TCC, cross_TCN, own_CN)
    num_terms = len(value_C)
    return Coefficients(
        value_C=value_C,
        prompts_CC=prompts_CC,
        prompts_df=num_prompts - 1,
        runs_CC=_positive_part(trials_CC - both_CC),
        runs_df=max(1, num_trials - num_terms),
    )


def _design(trials: Sequence[LawPoints], form: LawForm, terms: int, middle: float) -> Design:
    roots = [point_weights(points.d_P, middle)[:, None] for points in trials]
    return Design(
        tuple(
            root_P1 * law_basis(points.d_P, form, terms)
            for root_P1, points in zip(roots, trials, strict=True)
        ),
        tuple(root_P1 * points.gain_PN for root_P1, points in zip(roots, trials, strict=True)),
    )


def _stretches_p(law: Design, trials: Sequence[LawPoints]) -> float:
    """Whether evaluations in some stretch of d are off the law together: Wald, scaled as Hotelling's."""
    num_bins = min(_MOST_STRETCHES, len(trials) // _TRIALS_PER_STRETCH)
    if num_bins < 2:
        return 1.0
    cuts = np.quantile(np.concatenate([p.d_P for p in trials]), np.arange(1, num_bins) / num_bins)
    bases = tuple(
        np.concatenate([x_PC, np.eye(num_bins)[np.searchsorted(cuts, points.d_P)]], axis=1)
        for x_PC, points in zip(law.bases, trials, strict=True)
    )
    found = pooled_coefficients(Design(bases, law.gains))
    error_BB = (found.prompts_CC + found.runs_CC)[2:, 2:]
    if np.linalg.matrix_rank(error_BB) < num_bins:
        return 1.0
    off_B = found.value_C[2:]
    square = float(off_B @ np.linalg.solve(error_BB, off_B))
    df = min(len(trials), law.gains[0].shape[1]) - 1
    room = df - num_bins + 1
    return float(special.fdtrc(num_bins, room, square * room / (df * num_bins)))


def _both(solve_CC: Floats, gram_TCC: Floats, cross_TCN: Floats, own_CN: Floats) -> Floats:
    """What is neither a prompt's nor a trial's own: counted with both, so it is taken off once."""
    score_TCN = solve_CC @ (cross_TCN - gram_TCC @ own_CN)
    own_TCN = score_TCN - score_TCN.mean(axis=2, keepdims=True)
    num_prompts = own_CN.shape[1]
    return np.einsum("tcn,tdn->cd", own_TCN, own_TCN) / (num_prompts * (num_prompts - 1))


def _positive_part(matrix_CC: Floats) -> Floats:
    values_C, vectors_CC = np.linalg.eigh((matrix_CC + matrix_CC.T) / 2)
    return (vectors_CC * np.maximum(values_C, 0.0)) @ vectors_CC.T


def _run_sd(law: Design) -> float:
    """Departure of a run from its own law at the median d, where the weight is a half."""
    left = [
        residuals_of(x_PC, y_PN)
        for x_PC, y_PN in zip(law.bases, law.gains, strict=True)
        if len(x_PC) > x_PC.shape[1]
    ]
    if not left:
        return math.nan
    return math.sqrt(2 * float(np.median([found.run_variance(found.rest_P) for found in left])))
