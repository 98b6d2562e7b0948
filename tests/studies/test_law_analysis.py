"""What is said of one level."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy import stats
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-law"))

import law_analysis
from law_arms import LEVELS, SHIPPED
from law_runs import Runs
from law_study_case import MIDDLE, STEPS, analysed, bon_tables, holds, made_up


def test_the_peak_of_each_draw_is_read_where_the_others_have_theirs():
    """No signal: the highest of twelve is biased, the stopped one is not."""
    rng = np.random.default_rng(0)
    gold = rng.normal(0, 0.2, (8, 13))
    own = Runs(gold, gold, np.tile(np.linspace(0, 9, 13), (8, 1)), tuple(STEPS))
    told = law_analysis._level(own, bon_tables()[1].head(8), 1)["peak"]

    assert holds(told["gain"], -float(gold[:, 0].mean()))
    assert told["highest"]["low"] > 0.1


def test_the_gain_at_the_peak_holds_for_all_levels_at_once():
    one = analysed()["levels"][MIDDLE]["peak"]

    ratio = stats.t.isf(0.025 / len(LEVELS), 7) / stats.t.isf(0.025, 7)
    wide, narrow = (told["high"] - told["mean"] for told in (one["gain"], one["gain_alone"]))
    assert wide / narrow == pytest.approx(ratio)


def test_without_the_runs_under_the_shipped_proxy_all_else_is_found():
    found = law_analysis.analyse(made_up(), *bon_tables(), None)

    assert SHIPPED not in found
    assert set(found["frontier"]) == {"middle"}
