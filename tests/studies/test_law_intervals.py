"""Means over draws of the proxy."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-law"))

from law_intervals import factor_of_draws, mean_if_enough, mean_of_draws


def test_draws_without_a_value_are_left_out():
    found = mean_of_draws(np.array([1.0, math.nan, 3.0]))

    assert (found["mean"], found["num"]) == (2.0, 2)


def test_one_draw_has_no_interval():
    assert mean_of_draws(np.array([1.0, math.nan]))["low"] is None


def test_two_draws_that_got_there_are_too_few_to_say():
    assert mean_if_enough(np.array([1.0, 2.0, math.nan]), 1) == {"mean": None, "num": 2}
    assert mean_if_enough(np.array([1.0, 2.0, 3.0]), 1)["mean"] == 2.0


def test_a_factor_is_the_geometric_mean_of_the_ratios():
    found = factor_of_draws(np.array([2.0, 8.0]), np.array([1.0, 1.0]))

    assert found["mean"] == pytest.approx(4.0)
    assert found["low"] * found["high"] == pytest.approx(16.0)


def test_factors_that_hold_at_once_are_wider_by_the_limit_of_t():
    """Two draws: t(1) is 12.706 for one, 38.188 for three at once."""
    values = np.array([2.0, 8.0])
    one, three = factor_of_draws(values), factor_of_draws(values, comparisons=3)

    ratio = math.log(three["high"] / 4.0) / math.log(one["high"] / 4.0)
    assert ratio == pytest.approx(38.188 / 12.706, rel=1e-3)
