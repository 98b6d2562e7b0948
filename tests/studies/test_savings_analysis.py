"""The arithmetic of what a sweep saves, on made tables."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-savings"))

import savings_analysis as analysis


def test_a_difference_of_ways_is_found_with_its_interval() -> None:
    rng = np.random.default_rng(0)
    shared = rng.normal(0, 0.5, 4)
    a = 1.0 + shared + rng.normal(0, 0.05, (8, 4))
    b = 0.6 + shared + rng.normal(0, 0.05, (6, 4))
    one = analysis.crossed(a, b)
    assert one["mean"] == pytest.approx(0.4, abs=0.06)
    assert 0.2 < one["low"] < one["mean"] < one["high"] < 0.6  # what seeds share cancels
    alone = analysis.crossed(a)
    assert alone["high"] - alone["low"] > 0.3  # and doesn't for one mean


def test_a_stop_is_judged_by_runs_that_did_not_choose_it() -> None:
    rng = np.random.default_rng(3)
    noise = rng.normal(0, 1, (400, 9))
    assert abs(analysis.own_stop(noise).mean()) < 0.1
    assert noise[:, 1:].max(axis=1).mean() > 1.0  # what judging by itself would give
    picked = analysis.best_of([noise, rng.normal(0, 1, (400, 9)) + 3.0])
    assert picked.mean() == pytest.approx(3.0, abs=0.1)


def test_what_was_spared_adds_up() -> None:
    sweeps = [{"spared": {"done": 0, "pruned": 100}}, {"spared": {"kl_limit": 60, "done": 0}}]
    assert analysis._spared(sweeps, [400, 400]) == {"done": 0.0, "pruned": 0.125, "kl_limit": 0.075}
