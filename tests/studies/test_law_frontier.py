"""What beta changes, on curves of which it is known."""

from __future__ import annotations

import math
import sys

import pytest
from scipy import stats
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-law"))

from law_arms import PENALTY_SETTINGS, PRICED
from law_study_case import analyse, analysed, holds, made_up


@pytest.fixture(scope="module")
def found():
    return analysed()


def test_one_curve_is_not_told_apart_but_the_speed_along_it_is(found):
    own = found["frontier"]["middle"][PRICED]

    assert holds(own["at_free"], 0.0)
    assert holds(own["at_priced"], 0.0)
    assert holds(own["held"], 0.0)
    assert all(holds(own["at_kl"][kl], 0.0) for kl in ("0.5", "1", "1.5"))
    assert own["speed"]["60"]["high"] < 0.6


@pytest.mark.parametrize("where", ["middle", "shipped"])
def test_a_curve_that_lies_higher_is(where):
    own = analyse(made_up(lift=0.3), lift=0.3)["frontier"][where][PRICED]

    assert holds(own["at_free"], 0.3)
    assert own["at_free"]["low"] > 0
    assert own["held"]["low"] > 0


def test_a_kl_that_was_hardly_reached_has_no_figure(found):
    cell = found["frontier"]["shipped"]["k1-reward 0.5"]["at_kl"]["3"]

    assert cell == {"mean": None, "num": 0}


def test_the_factors_of_a_proxy_hold_at_once_over_arms_and_steps():
    speed = analysed()["frontier"]["shipped"]["k1-reward 0.15"]["speed"]
    logs = {
        step: {k: math.log(v) for k, v in one.items() if k != "num"} for step, one in speed.items()
    }

    assert set(speed) == {"15", "30", "60"}
    for one in logs.values():  # three arms at three steps
        half = stats.t.isf(0.025 / 9, 7) * math.exp(one["sd"]) / math.sqrt(8)
        assert one["high"] - one["mean"] == pytest.approx(half, rel=1e-3)


def test_the_best_stop_under_the_shipped_proxy_has_the_family_of_the_study_of_penalties():
    for where, settings in (("shipped", PENALTY_SETTINGS), ("middle", 1)):
        one = analysed()["frontier"][where][PRICED]["peak_gain"]
        half = stats.t.isf(0.025 / settings, 7) * one["sd"] / math.sqrt(8)
        assert one["high"] - one["mean"] == pytest.approx(half)
