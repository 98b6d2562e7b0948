"""Least squares over evaluations and prompts in; coefficients with the error that prompts and the run bring, out.

An error of a coefficient has two parts. Prompts: the fit to the mean over prompts is the mean of
the fits to each prompt, so their scatter is the error, however a prompt's evaluations hang
together. The run: its departures are shared by all prompts, so their size is read from the
residuals, beyond what prompts explain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]

CONFIDENCE: Final = 0.95

RUN_RHO: Final = 0.6
"""Assumed correlation of a run's departures from one evaluation to the next: eight evaluations can't
tell it. A lower true one makes intervals wider than need be; well above it they are too narrow."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % interval; an end that is not bounded is infinite."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Least-squares coefficients with the two parts of their covariance."""

    value_C: Floats
    prompts_CC: Floats
    prompts_df: int
    runs_CC: Floats
    runs_df: int

    def along(self, direction_C: Floats) -> tuple[float, float, float]:
        """Value, standard error and degrees of freedom (Satterthwaite 1946) of a combination."""
        prompts = float(direction_C @ self.prompts_CC @ direction_C)
        runs = max(0.0, float(direction_C @ self.runs_CC @ direction_C))
        total = prompts + runs
        if total <= 0:
            return float(direction_C @ self.value_C), 0.0, float(self.prompts_df)
        df = total**2 / (prompts**2 / self.prompts_df + runs**2 / self.runs_df)
        return float(direction_C @ self.value_C), math.sqrt(total), df

    def p_value(self, index: int) -> float:
        """Two-sided Student t of one coefficient against 0."""
        value, se, df = self.along(np.eye(len(self.value_C))[index])
        return 1.0 if se == 0 else float(2 * special.stdtr(df, -abs(value) / se))

    def interval(self, direction_C: Floats) -> Estimate:
        """A combination with its interval."""
        value, se, df = self.along(direction_C)
        half = student_t(df) * se
        return Estimate(value, value - half, value + half)


def student_t(df: float) -> float:
    """Half width of a 95 % interval in standard errors."""
    return float(special.stdtrit(df, 0.5 + CONFIDENCE / 2))


@dataclass(frozen=True, slots=True)
class Residuals:
    """What a fit leaves of a trial's mean gains."""

    rest_P: Floats
    by_prompts: float
    """Sum of squares that prompts alone are expected to leave."""
    room: float
    """Sum of squares that run noise of variance 1 is expected to leave."""

    def run_variance(self, rest_P: Floats) -> float:
        """The variance of the run's own departures by these residuals; 0 where prompts explain all."""
        return max(0.0, float(rest_P @ rest_P) - self.by_prompts) / self.room


def residuals_of(x_PC: Floats, y_PN: Floats) -> Residuals:
    """Fit by least squares and keep what is left."""
    rest_PP = np.eye(len(x_PC)) - x_PC @ np.linalg.pinv(x_PC)
    rest_PN = rest_PP @ y_PN
    by_prompts = float(rest_PN.var(axis=1, ddof=1).sum()) / y_PN.shape[1]
    room = float((rest_PP * _run_correlation(len(x_PC))).sum())
    return Residuals(rest_PN.mean(axis=1), by_prompts, room)


def trial_coefficients(
    x_PC: Floats, y_PN: Floats, usual: float = 0.0
) -> tuple[Coefficients, float]:
    """Coefficients, and the variance of the run's own departures on the scale of ``y_PN``.

    ``usual``: a variance that the run's departures have at least, in the coefficients' errors.
    """
    num_points, num_terms = x_PC.shape
    num_prompts = y_PN.shape[1]
    solve_CP = np.linalg.pinv(x_PC)
    own_CN = solve_CP @ y_PN
    left = residuals_of(x_PC, y_PN)
    variance = left.run_variance(left.rest_P)
    found = Coefficients(
        value_C=own_CN.mean(axis=1),
        prompts_CC=np.atleast_2d(np.cov(own_CN)) / num_prompts,
        prompts_df=num_prompts - 1,
        runs_CC=max(variance, usual) * solve_CP @ _run_correlation(num_points) @ solve_CP.T,
        runs_df=num_points - num_terms,
    )
    return found, variance


def _run_correlation(num_points: int) -> Floats:
    return RUN_RHO ** np.abs(np.subtract.outer(np.arange(num_points), np.arange(num_points)))


def missed_p(x_PC: Floats, y_PN: Floats, usual: float) -> float:
    """Whether residuals are larger than prompts and the usual run explain: Hotelling 1931.

    With no run noise the size is exact for normal prompts, whatever the correlation of the
    evaluations. nan turns to 1 where there are too few prompts for it.
    """
    num_points, num_terms = x_PC.shape
    num_prompts, num_rest = y_PN.shape[1], num_points - num_terms
    if num_prompts <= num_rest + 1:
        return 1.0
    rest_PR = np.linalg.qr(x_PC, mode="complete")[0][:, num_terms:]
    rest_RN = rest_PR.T @ y_PN
    error_RR = np.atleast_2d(np.cov(rest_RN)) / num_prompts
    error_RR = error_RR + usual * rest_PR.T @ _run_correlation(num_points) @ rest_PR
    mean_R = rest_RN.mean(axis=1)
    if np.linalg.matrix_rank(error_RR) < num_rest:
        return 1.0 if np.allclose(mean_R, 0, atol=1e-9) else 0.0  # no noise at all
    square = float(mean_R @ np.linalg.solve(error_RR, mean_R))
    factor = (num_prompts - num_rest) / ((num_prompts - 1) * num_rest)
    return float(special.fdtrc(num_rest, num_prompts - num_rest, square * factor))
