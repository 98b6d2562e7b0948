from __future__ import annotations

import math

import numpy as np
import pytest
from generated_trials import Floats, Noise, ar1, binomial_floor

from kltune.statistics.settling import Trend, plateaued, settling

DRAWS = 400


def series(rng: np.random.Generator, rho: float, growth: float = 0.0, sd: float = 0.2) -> Floats:
    """KL over 80 steps; log KL grows by ``growth`` from the first step to the last."""
    return 2 * np.exp(sd * ar1(rng, Noise(), rho, (80,)) + growth * np.linspace(0, 1, 80))


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.8, 0.9])
def test_the_interval_of_the_change_holds_it_whatever_the_autocorrelation(rho: float) -> None:
    rng = np.random.default_rng(1)
    inside = claimed = 0
    true = math.exp(39 / 79)
    for _ in range(DRAWS):
        found = settling(series(rng, rho, growth=1.0))
        inside += found.low <= true <= found.high
        claimed += settling(series(rng, rho)).trend in (Trend.RISING, Trend.FALLING)
    least = binomial_floor(DRAWS, 0.90)
    assert inside >= least, f"{inside} of {DRAWS}, {least} wanted"
    assert claimed <= 0.1 * DRAWS, f"{claimed} of {DRAWS} still series are said to move"


def test_kl_that_grows_threefold_over_the_tail_is_hardly_ever_called_settled() -> None:
    rng = np.random.default_rng(2)
    found = [settling(series(rng, 0.5, growth=2.2)) for _ in range(DRAWS)]
    assert sum(f.trend is Trend.SETTLED for f in found) <= 0.01 * DRAWS
    assert sum(f.trend is Trend.RISING for f in found) > 0.9 * DRAWS


def test_a_flat_kl_has_settled_at_its_level() -> None:
    found = settling(np.concatenate([np.linspace(0.1, 2, 30), np.full(50, 2.0)]))
    assert found.trend is Trend.SETTLED
    assert (found.factor, found.level, found.num_steps) == (pytest.approx(1), 2.0, 40)
    assert plateaued(np.full(80, 2.0))


def test_a_straight_rise_and_fall_are_named() -> None:
    rise = np.exp(np.linspace(0, 4, 80))
    assert settling(rise).trend is Trend.RISING
    assert settling(rise[::-1]).trend is Trend.FALLING
    assert not plateaued(rise)


def test_short_empty_or_kl_free_trials_tell_nothing() -> None:
    for kl in (np.full(30, 2.0), np.empty(0), np.zeros(80), np.full(80, np.nan)):
        found = settling(kl)
        assert found.trend is Trend.UNTOLD
        assert math.isnan(found.factor)


def test_single_steps_without_a_logarithm_or_a_number_do_no_harm() -> None:
    kl = series(np.random.default_rng(3), 0.0, sd=0.05)
    kl[60], kl[70] = -0.01, np.nan
    assert settling(kl).num_steps == 40
    assert math.isfinite(settling(kl).factor)
