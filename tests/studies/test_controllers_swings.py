"""The controllers study: swings of KL, on series whose period is known."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-controllers"))

from controllers_swings import swing_steps, swings_of


def wave(period: float, size: float = 0.5, noise: float = 0.1, seed: int = 0, num: int = 120):
    """KL over target that swings by a factor e^size about 1."""
    rng = np.random.default_rng(seed)
    return np.exp(size * np.sin(2 * np.pi * np.arange(num) / period) + rng.normal(0, noise, num))


class TestSwings:
    @pytest.mark.parametrize("period", [8, 12, 20, 30])
    def test_a_known_period_is_found(self, period):
        rate, found = swings_of(wave(period))

        assert found == pytest.approx(period, rel=0.06)
        assert rate == pytest.approx(20 / period, rel=0.15)

    def test_noise_that_crosses_the_target_at_every_other_step_makes_none(self):
        values = wave(12, size=0.0, noise=0.06)

        assert (np.diff(np.sign(values - 1)) != 0).sum() > 40
        assert swings_of(values)[0] == 0

    def test_a_kl_that_comes_up_to_its_target_and_stays_makes_none(self):
        assert swing_steps(np.array([0.1, 0.5, 0.9, 1.1, 1.2, 0.9])) == []

    def test_one_crossing_of_the_band_is_one_swing_and_has_no_period(self):
        rate, period = swings_of(np.r_[np.full(10, 2.0), np.full(10, 0.5)])

        assert (rate, math.isnan(period)) == (0.5, True)

    def test_too_few_steps_say_nothing(self):
        assert math.isnan(swings_of(np.ones(9))[0])
