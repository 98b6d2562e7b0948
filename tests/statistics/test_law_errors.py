from __future__ import annotations

import math

import numpy as np
import pytest
from generated_trials import Noise, ar1, binomial_ceiling
from scipy import stats

from kltune.statistics.law_errors import (
    RUN_RHO,
    Coefficients,
    missed_p,
    residuals_of,
    student_t,
    trial_coefficients,
)

X = np.stack([np.ones(8), np.linspace(-1, 1, 8)], axis=1)


def test_the_error_of_the_prompts_is_that_of_the_mean_of_their_own_fits() -> None:
    y = np.random.default_rng(1).standard_normal((8, 64))
    found, _ = trial_coefficients(X, y)
    own = np.linalg.lstsq(X, y, rcond=None)[0]
    assert found.value_C == pytest.approx(own.mean(axis=1))
    assert found.prompts_CC == pytest.approx(np.cov(own) / 64)


def test_a_bootstrap_over_prompts_finds_the_same_error() -> None:
    rng = np.random.default_rng(2)
    y = ar1(rng, Noise(), 0.7, (8, 64))
    found, _ = trial_coefficients(X, y)
    redrawn = [
        np.linalg.lstsq(X, y[:, rng.integers(0, 64, 64)].mean(axis=1), rcond=None)[0]
        for _ in range(1000)
    ]
    assert np.std(redrawn, axis=0) == pytest.approx(np.sqrt(np.diag(found.prompts_CC)), rel=0.1)


def test_without_run_noise_degrees_of_freedom_are_those_of_the_prompts() -> None:
    found = Coefficients(np.array([2.0]), np.array([[0.04]]), 63, np.zeros((1, 1)), 6)
    assert found.along(np.ones(1)) == pytest.approx((2.0, 0.2, 63))
    assert found.p_value(0) == pytest.approx(2 * stats.t.sf(10, 63))
    interval = found.interval(np.ones(1))
    assert (interval.low, interval.high) == pytest.approx(stats.t.interval(0.95, 63, 2.0, 0.2))
    both = Coefficients(np.array([2.0]), np.array([[0.02]]), 63, np.array([[0.02]]), 6)
    assert both.along(np.ones(1))[2] == pytest.approx(4 / (1 / 63 + 1 / 6))
    none = Coefficients(np.zeros(1), np.zeros((1, 1)), 63, np.zeros((1, 1)), 6)
    assert none.p_value(0) == 1.0


def test_student_t_is_that_of_scipy() -> None:
    assert student_t(6.0) == pytest.approx(stats.t.ppf(0.975, 6))


def test_the_variance_of_the_run_is_unbiased_where_its_correlation_is_as_assumed() -> None:
    rng = np.random.default_rng(3)
    variances = []
    for _ in range(800):
        run = 0.5 * ar1(rng, Noise(), RUN_RHO, (8, 1))
        left = residuals_of(X, run + rng.standard_normal((8, 64)))
        variances.append((float(left.rest_P @ left.rest_P) - left.by_prompts) / left.room)
    assert np.mean(variances) == pytest.approx(0.25, rel=0.1)


def test_residuals_within_the_noise_of_the_prompts_miss_in_1_of_20() -> None:
    rng, draws = np.random.default_rng(4), 600
    for noise in (Noise(), Noise(tail_df=3)):
        missed = sum(missed_p(X, ar1(rng, noise, 0.8, (8, 64)), 0.0) < 0.05 for _ in range(draws))
        most = binomial_ceiling(draws, 0.05)
        assert missed <= most, f"{missed} of {draws}, at most {most} wanted"


def test_a_departure_shared_by_all_prompts_is_missed_unless_it_is_usual() -> None:
    rng = np.random.default_rng(5)
    bump = np.array([0, 0, 0.8, 0.8, 0, 0, 0, 0])
    y = bump[:, None] + rng.standard_normal((8, 64))
    assert missed_p(X, y, 0.0) < 0.001
    assert missed_p(X, y, 0.5) > 0.05


def test_without_any_noise_only_an_exact_fit_is_not_missed() -> None:
    exact = np.repeat((X @ np.array([1.0, 2.0]))[:, None], 64, axis=1)
    assert missed_p(X, exact, 0.0) == 1.0
    assert missed_p(X, exact**2, 0.0) == 0.0
    assert missed_p(X, exact[:, :5], 0.0) == 1.0  # too few prompts to tell
    assert math.isfinite(trial_coefficients(X, exact)[1])
