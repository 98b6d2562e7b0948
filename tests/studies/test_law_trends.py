"""What a better proxy changes, on proxies of which it is known."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-law"))

from law_arms import AXES, COMPARISONS, LEVELS, block_name, level_of
from law_runs import Runs
from law_study_case import analyse, analysed, bon_tables, holds, made_up
from law_trends import trends


@pytest.fixture(scope="module")
def found():
    return analysed()


def test_more_comparisons_lower_b_leave_a_and_raise_the_peak(found):
    told = found["trends"]["comparisons"]

    assert holds(told["b"], -0.08)
    assert holds(told["a"], 0.0)
    assert told["peak_gain"]["low"] > 0
    assert told["log_peak_kl"]["mean"] > 0
    assert told["agreement"]["low"] > 0


def test_proxies_that_are_alike_show_no_trend():
    told = analyse(made_up(flat=True, seed=3))["trends"]

    assert all(holds(told[axis][m], 0.0) for axis in AXES for m in ("peak_gain", "b", "a"))


def test_the_peak_rises_with_agreement(found):
    assert found["by_agreement"]["peak_gain_by_agreement"]["low"] > 0


def test_the_kl_where_runs_are_highest_has_the_slope_that_was_put_in():
    """No noise; each draw's peak lies a factor 2 further for four times as many comparisons, for any place it has."""
    names = [level_of(block_name(p, 0)) for p in COMPARISONS]
    others = [level_of(block_name(p, 0)) for p in LEVELS]
    pace = np.linspace(1.0, 3.0, 8)[:, None]
    gold = np.tile([0.0, 1.0, 2.0, 1.0], (8, 1))
    kl = np.tile([0.0, 0.5, 1.0, 2.0], (8, 1)) * pace
    of_level = {
        name: Runs(
            gold, gold, kl * (2.0 ** names.index(name) if name in names else 1.0), (0, 5, 10, 15)
        )
        for name in others
    }
    told = trends(of_level, of_level, bon_tables()[1])["comparisons"]["log_peak_kl"]

    assert told["mean"] == pytest.approx(math.log(2))
    assert told["sd"] == pytest.approx(0.0, abs=1e-9)
