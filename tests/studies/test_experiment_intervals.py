"""Intervals over seeds: each as wide as it says, several that hold at once, factors, and what they tell."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from scipy import stats
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the scripts do it

from experiment_intervals import at_once, factor_at_once, told

TWELVE = 12
"""Intervals that are to hold at once."""


def test_one_interval_is_that_of_students_t() -> None:
    values = np.array([0.3, 1.1, 0.4, 0.9, -0.2, 0.7, 0.5, 0.1])
    low, high = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)

    found = at_once(values)

    assert (found["mean"], found["num"]) == (pytest.approx(values.mean()), 8)
    assert (found["low"], found["high"]) == (pytest.approx(low), pytest.approx(high))
    assert found["half"] == pytest.approx((high - low) / 2)


def test_of_several_each_misses_as_much_less_often() -> None:
    """Bonferroni: of twelve at 95 % each is one at 1 - .05 / 12."""
    values = np.array([0.3, 1.1, 0.4, 0.9, -0.2, 0.7, 0.5, 0.1])
    low, high = stats.ttest_1samp(values, 0.0).confidence_interval(1 - 0.05 / TWELVE)

    found = at_once(values, TWELVE)

    assert (found["low"], found["high"]) == (pytest.approx(low), pytest.approx(high))


def all_hold(values_KS: np.ndarray, comparisons: int) -> bool:
    found = [at_once(values_S, comparisons) for values_S in values_KS]
    return all(one["low"] <= 0 <= one["high"] for one in found)


def test_several_hold_at_once() -> None:
    """Every setting with a spread of its own, as with controllers and penalties."""
    rng = np.random.default_rng(1)
    spread_K1 = np.linspace(0.2, 3.0, TWELVE)[:, None]
    draws = [spread_K1 * rng.normal(size=(TWELVE, 8)) for _ in range(500)]

    assert 0.92 < np.mean([all_hold(values, TWELVE) for values in draws]) < 0.98
    assert np.mean([all_hold(values, 1) for values in draws]) < 0.7  # each alone: .95^12 = .54


def test_differences_from_one_reference_hold_at_once() -> None:
    """They move together: the limit is then on the safe side."""
    rng = np.random.default_rng(2)
    draws = [rng.normal(size=(TWELVE, 8)) - rng.normal(size=8) for _ in range(500)]

    assert np.mean([all_hold(values, TWELVE) for values in draws]) > 0.93


def test_a_seed_without_a_value_is_left_out() -> None:
    whole = at_once(np.array([1.0, 2.0, 4.0]), 3)

    assert at_once(np.array([1.0, math.nan, 2.0, 4.0, math.nan]), 3) == whole
    assert whole["num"] == 3


def test_one_seed_tells_nothing() -> None:
    found = at_once(np.array([3.0, math.nan]))

    assert found == {"mean": 3.0, "low": -math.inf, "high": math.inf, "half": math.inf, "num": 1}
    assert told(found) == "untold"


def test_no_seed_at_all_has_no_mean_and_tells_nothing() -> None:
    found = at_once(np.array([math.nan, math.nan]))

    assert math.isnan(found["mean"])
    assert (found["num"], told(found)) == (0, "untold")


def test_a_factor_is_a_geometric_mean_with_the_same_factor_on_either_side() -> None:
    logs = np.log([2.0, 8.0, 4.0])

    found = factor_at_once(logs, 5)

    assert (found["mean"], found["num"]) == (pytest.approx(4.0), 3)
    assert found["high"] == pytest.approx(4.0 * found["half"])
    assert found["low"] == pytest.approx(4.0 / found["half"])
    assert math.log(found["half"]) == pytest.approx(at_once(logs, 5)["half"])


def test_the_factor_of_one_seed_may_be_any() -> None:
    found = factor_at_once(np.log([2.0]))

    assert found["mean"] == pytest.approx(2.0)
    assert (found["low"], found["high"], told(found, 1.0)) == (0.0, math.inf, "untold")


def test_a_factor_too_large_for_a_number_is_infinite() -> None:
    assert factor_at_once(np.array([0.0, 400.0]))["high"] == math.inf


@pytest.mark.parametrize(
    ("low", "high", "where"),
    [
        (-0.3, -0.1, "below"),
        (-0.3, 0.0, "untold"),  # 0 itself may be it
        (-0.3, 0.2, "untold"),
        (0.0, 0.2, "untold"),
        (0.1, 0.2, "above"),
    ],
)
def test_an_interval_lies_on_one_side_of_a_value_or_tells_nothing(
    low: float, high: float, where: str
) -> None:
    assert told({"low": low, "high": high}) == where
    assert told({"low": low + 1, "high": high + 1}, 1.0) == where
