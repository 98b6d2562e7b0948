"""Curves at equal KL: who is read between evaluations bears the error."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-law"))

from law_equal_kl import LOWEST_KL, off_at
from law_runs import Runs
from law_study_case import STEPS


def test_a_curve_that_is_read_between_two_points_of_a_hump_looks_worse():
    """Same hump, 13 evaluations and 4: each way errs to the disadvantage of the one that is interpolated."""
    kl = np.tile(np.linspace(0, 8, 13), (8, 1))
    gold = np.sqrt(kl) * (1 - 0.35 * np.sqrt(kl))
    fine = Runs(gold, gold, kl, tuple(STEPS))
    coarse = Runs(gold[:, ::4], gold[:, ::4], kl[:, ::4], tuple(STEPS[::4]))

    assert off_at(fine, coarse).mean() == pytest.approx(0.0, abs=1e-9)
    assert off_at(coarse, fine).mean() < -0.01


def test_an_evaluation_that_the_other_run_never_reached_does_not_count():
    kl = np.tile([0.0, 1.0, 2.0], (8, 1))
    near, far = (Runs(kl, kl, kl * by, (0, 5, 10)) for by in (0.1, 1.0))

    assert np.isnan(off_at(near, far)).all()


def test_evaluations_near_the_start_do_not_count():
    """By hand: .1 more at .2 nats, .3 more at 1: only the second is above `LOWEST_KL`."""
    kl = np.tile([0.0, 0.2, 1.0], (2, 1))
    low = Runs(kl * 0, kl, kl, (0, 5, 10))
    high = Runs(np.tile([0.0, 0.1, 0.3], (2, 1)), kl, kl, (0, 5, 10))

    assert 0.2 < LOWEST_KL < 1.0
    assert off_at(high, low) == pytest.approx([0.3, 0.3])
    assert off_at(high, low, low=0.0) == pytest.approx([0.4 / 3] * 2)
