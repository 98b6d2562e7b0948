"""Gold of one trial by KL and prompt in; the over-optimisation law fitted to it, and the KL of its peak, out.

Gao, Schulman & Hilton 2022 (arXiv 2210.10760): with d = sqrt(KL in nats per sequence), gold gains
R(d) = d (a - b log d) under RL and d (a - b d) under best-of-n, over gold at the start.

Least squares are linear in a and b, so the fit to the mean over prompts is the mean of the fits
to each prompt. Their scatter is the error that prompts bring, whatever a prompt's noise does from
one evaluation to the next (what a bootstrap over prompts would find, without drawing it). On top
comes the error of the run itself, which departs from any law in a way that all prompts share: its
size is read from the residuals, beyond what prompts explain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from kltune.statistics.law_errors import (
    Coefficients,
    Estimate,
    Floats,
    missed_p,
    student_t,
    trial_coefficients,
)

MISFIT_LEVEL: Final = 0.05
"""A law that holds is rejected in at most this share of cases."""

FEWEST_POINTS: Final = 5
"""Evaluations after the start: two are spent on the law and one on the test whether it bends otherwise."""

FEWEST_PROMPTS: Final = 8


class LawForm(StrEnum):
    """How the policy was moved away from the reference."""

    RL = "rl"
    BEST_OF_N = "best-of-n"


class LawVerdict(StrEnum):
    """What the fit says of the KL at which gold peaks."""

    IDENTIFIED = "identified"
    NOT_IDENTIFIABLE = "not identifiable"
    REJECTED = "law rejected"


class LawDoubt(StrEnum):
    """Why the peak is not identifiable."""

    NONE = ""
    TOO_FEW = "too few evaluations or prompts"
    NO_BEND = "no bend can be told, so there may be no peak"
    OUTSIDE = "the peak may lie outside the KL that was reached"


@dataclass(frozen=True, slots=True)
class LawPoints:
    """What a law is fitted to; evaluations at the start, without KL or not finite are left out."""

    d_P: Floats
    """Square root of KL, nats per sequence."""
    gain_PN: Floats
    """Gold over gold at the start, by prompt."""


@dataclass(frozen=True, slots=True)
class RunNoise:
    """By how much a run departs from the law for a while, in a way that all prompts share."""

    sd: float
    """Gold, near the start; it grows as sqrt(1 + (d / middle)^2)."""
    middle: float
    """The d at which its variance is twice that at the start, root of nats per sequence."""


@dataclass(frozen=True, slots=True)
class LawFit:
    """The law fitted to one trial or to all trials together."""

    form: LawForm
    verdict: LawVerdict
    doubt: LawDoubt
    a: Estimate | None
    """None with too few points."""
    b: Estimate | None
    kl_peak: Estimate | None
    """Nats per sequence. Value nan where b is not above 0, so that the law has no peak."""
    gain_peak: float
    """Gold over the start at the peak; nan without one."""
    misfit_p: float
    """How often a law that holds would be missed by as much as this one; nan: not tested."""
    run_sd: float
    """Departure of the run from the law beyond what prompts explain, in gold at the median KL; nan: not known."""
    kl_range: tuple[float, float]
    """Lowest and highest KL after the start, nats per sequence."""
    num_points: int
    num_prompts: int

    def gain(self, d_P: Floats) -> Floats:
        """The fitted law at these d; nan where there is no fit."""
        if self.a is None or self.b is None:
            return np.full_like(d_P, math.nan)
        return law_basis(d_P, self.form) @ np.array([self.a.value, self.b.value])


def law_points(kl_seq_S: Floats, gold_SN: Floats) -> LawPoints:
    """Gains over the first row, which is the start, at the square root of KL."""
    kl = np.asarray(kl_seq_S, dtype=np.float64)
    gold = np.asarray(gold_SN, dtype=np.float64)
    if not len(gold):
        return LawPoints(np.empty(0), np.empty((0, 0)))
    gain = gold[1:] - gold[0]
    seen = np.isfinite(kl[1:]) & (kl[1:] > 0) & np.isfinite(gain).all(axis=1)
    return LawPoints(np.sqrt(kl[1:][seen]), gain[seen])


def law_basis(d_P: Floats, form: LawForm, terms: int = 2) -> Floats:
    """Columns that a and b (and, third, a bend that the law has not) multiply."""
    bend = -np.log(d_P) if form is LawForm.RL else -d_P
    return np.stack([d_P * bend**power for power in range(terms)], axis=1)


def point_weights(d_P: Floats, middle: float) -> Floats:
    """Root of the weight of each evaluation: far from the start a run departs further from any law."""
    return 1 / np.sqrt(1 + (d_P / middle) ** 2)


def fit_law(points: LawPoints, form: LawForm, run: RunNoise | None = None) -> LawFit:
    """Fit the law to one trial.

    Intervals allow for the run's departures by the trial's own residuals, and by ``run`` where
    that is more. The law is rejected where it is missed by more than prompts and ``run`` (none
    known: prompts alone) explain, or where gold bends with log d (RL) or d (best-of-n) in another
    way; each test has half of `MISFIT_LEVEL`.
    """
    if not _is_enough(points):
        return no_fit(points, form)
    middle = float(np.median(points.d_P)) if run is None else run.middle
    bent_PC, y_PN = scaled_design(points, form, 3, middle)
    if np.linalg.matrix_rank(bent_PC, tol=1e-6 * float(np.abs(bent_PC).max())) < 3:
        return no_fit(points, form)  # all evaluations at nearly one KL
    usual = 0.0 if run is None else run.sd**2
    found, run_variance = trial_coefficients(bent_PC[:, :2], y_PN, usual)
    bent, _ = trial_coefficients(bent_PC, y_PN, usual)
    p_value = min(1.0, 2 * min(bent.p_value(2), missed_p(bent_PC[:, :2], y_PN, usual)))
    at_middle = math.sqrt(run_variance * (1 + float(np.median(points.d_P)) ** 2 / middle**2))
    return judge_law(found, p_value, points, form, at_middle)


def judge_law(
    found: Coefficients, misfit_p: float, points: LawPoints, form: LawForm, run_sd: float
) -> LawFit:
    """Say what coefficients and misfit mean for the peak."""
    kl_range = (float(points.d_P.min() ** 2), float(points.d_P.max() ** 2))
    a, b = found.interval(np.array([1.0, 0.0])), found.interval(np.array([0.0, 1.0]))
    peak = peak_kl(found, form)
    doubt = LawDoubt.NONE
    if not math.isfinite(peak.high) or not peak.value > 0:
        doubt = LawDoubt.NO_BEND
    elif peak.low < kl_range[0] or peak.high > kl_range[1]:
        doubt = LawDoubt.OUTSIDE
    verdict = LawVerdict.NOT_IDENTIFIABLE if doubt else LawVerdict.IDENTIFIED
    d_peak = np.sqrt(np.array([peak.value]))
    gain = float((law_basis(d_peak, form) @ found.value_C)[0]) if peak.value > 0 else math.nan
    return LawFit(
        form=form,
        verdict=LawVerdict.REJECTED if misfit_p < MISFIT_LEVEL else verdict,
        doubt=doubt,
        a=a,
        b=b,
        kl_peak=peak,
        gain_peak=gain,
        misfit_p=misfit_p,
        run_sd=run_sd,
        kl_range=kl_range,
        num_points=len(points.d_P),
        num_prompts=points.gain_PN.shape[1],
    )


def peak_kl(found: Coefficients, form: LawForm) -> Estimate:
    """KL at the peak with the interval of Fieller (1954), nats per sequence.

    The interval holds every KL at which the slope of the law can't be told from 0. It is not
    bounded where b can't be told from 0; then the lower end holds if there is a peak at all.
    """
    ratio = _ratio(found)
    low, value, high = (_kl_of(r, form) for r in (ratio.low, ratio.value, ratio.high))
    return Estimate(value, low, high)


def no_fit(points: LawPoints, form: LawForm) -> LawFit:
    """The fit of what can't be fitted."""
    squares = points.d_P**2
    span = (float(squares.min()), float(squares.max())) if len(squares) else (math.nan, math.nan)
    return LawFit(
        form=form,
        verdict=LawVerdict.NOT_IDENTIFIABLE,
        doubt=LawDoubt.TOO_FEW,
        a=None,
        b=None,
        kl_peak=None,
        gain_peak=math.nan,
        misfit_p=math.nan,
        run_sd=math.nan,
        kl_range=span,
        num_points=len(squares),
        num_prompts=points.gain_PN.shape[1],
    )


def _is_enough(points: LawPoints) -> bool:
    return len(points.d_P) >= FEWEST_POINTS and points.gain_PN.shape[1] >= FEWEST_PROMPTS


def scaled_design(
    points: LawPoints, form: LawForm, terms: int, middle: float
) -> tuple[Floats, Floats]:
    """Basis and gains, each evaluation by the root of its weight."""
    root_P1 = point_weights(points.d_P, middle)[:, None]
    return root_P1 * law_basis(points.d_P, form, terms), root_P1 * points.gain_PN


def _ratio(found: Coefficients) -> Estimate:
    """By Fieller: a / b, the ratios r with a - r b not told from 0."""
    (a, b) = (float(value) for value in found.value_C)
    value = a / b if b > 0 else math.nan
    aim = value if math.isfinite(value) else 0.0
    _, _, df = found.along(np.array([1.0, -aim]))
    square = student_t(df) ** 2
    both_CC = found.prompts_CC + found.runs_CC
    top = b * b - square * both_CC[1, 1]
    middle = a * b - square * both_CC[0, 1]
    bottom = a * a - square * both_CC[0, 0]
    inside = middle * middle - top * bottom
    if top > 0:
        if b < 0:
            return Estimate(math.nan, math.inf, math.inf)  # bends upwards: no peak
        root = math.sqrt(max(0.0, inside))
        return Estimate(value, (middle - root) / top, (middle + root) / top)
    if inside <= 0 or top == 0:
        return Estimate(value, -math.inf, math.inf)
    # Two rays are left: the lower has b < 0, a trough; the upper one is where a peak may be.
    return Estimate(value, max((middle - s * math.sqrt(inside)) / top for s in (-1, 1)), math.inf)


def _kl_of(ratio: float, form: LawForm) -> float:
    if math.isnan(ratio):
        return math.nan
    if form is LawForm.BEST_OF_N:
        return (max(0.0, ratio) / 2) ** 2
    return math.exp(min(700.0, 2 * (ratio - 1))) if ratio < math.inf else math.inf
