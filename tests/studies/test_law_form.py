"""The law's fit: a, b and the peak that were put in, and gold that is off it."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-law"))

from law_arms import DRAWS, LEVELS, NO_KL, Proxy
from law_form import (
    _hotelling,
    _mean_seen,
    _off_by_rank,
    _off_law,
    _stretch_tests,
    fitted_law,
)
from law_runs import Runs
from law_study_case import (
    MIDDLE,
    START,
    STEPS,
    A,
    analyse,
    analysed,
    holds,
    made_up,
    one_run,
    slope_b,
)

from kltune.statistics.law import LawForm


@pytest.fixture(scope="module")
def found():
    return analysed()


def test_a_b_and_the_kl_of_the_peak_are_those_that_were_put_in(found):
    own, b = found["levels"][MIDDLE]["law"], slope_b(Proxy())

    assert holds(own["a"], A)
    assert holds(own["b"], b)
    assert own["kl_low"] < math.exp(2 * (A / b - 1)) < own["kl_high"]


def test_intervals_hold_the_truth_as_often_as_they_say():
    hits = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        runs = [one_run(rng, NO_KL, 0.6, 0.06, 0.0) for _ in DRAWS]
        gold, kl = (np.array([r[c] for r in runs]) for c in ("gold", "kl_seq"))
        gold[:, 0] = START
        own = fitted_law(Runs(gold, kl, kl, tuple(STEPS)), LawForm.RL)
        truth = math.exp(2 * (A / 0.6 - 1))
        hits.append(
            (
                holds(own["a"], A),
                holds(own["b"], 0.6),
                own["kl_low"] < truth < own["kl_high"],
                own["bend_p"] > 0.05,
                own["stretch_p"] > 0.05,
                own["stretch_p_left_out"] > 0.05,
                own["stretch_p_ranked"] > 0.05,
            )
        )

    assert (np.mean(hits, axis=0) > 0.88).all()


def test_gold_on_the_law_is_not_rejected_and_gold_off_it_is(found):
    assert found["reject"]["rl"] == []
    assert found["reject"]["together"]["misfit_p"] > 0.05
    assert len(analyse(made_up(bend=0.4, noise=0.02))["reject"]["rl"]) == len(LEVELS)


def test_a_draw_without_evaluations_in_a_stretch_is_left_out_there():
    """By hand: cuts at 1 and 4 nats; the second draw never passes 4."""
    kl = np.array([[0.0, 0.5, 2.0, 9.0], [0.0, 0.5, 2.0, 3.0]])
    gold = np.array([[0.0, 1.0, 2.0, 3.0], [0.0, 5.0, 6.0, 8.0]])

    off = _off_law(
        Runs(gold, kl, kl, (0, 5, 10, 15)), np.zeros((2, 2)), LawForm.RL, np.array([1.0, 4.0])
    )
    assert off[0].tolist() == [1.0, 2.0, 3.0]
    assert off[1, :2].tolist() == [5.0, 7.0]
    assert math.isnan(off[1, 2])

    both = _mean_seen([off, off + 1.0, np.full((2, 3), np.nan)])
    assert both[0].tolist() == [1.5, 2.5, 3.5]
    assert math.isnan(both[1, 2])


def test_thirds_of_a_draws_own_evaluations_are_by_its_kl_not_by_its_steps():
    kl = np.array([[0.0, 9.0, 1.0, 5.0, 4.0, 2.0, 7.0]])
    gold = 10.0 * kl

    off = _off_by_rank(Runs(gold, kl, kl, tuple(range(7))), np.zeros((1, 2)), LawForm.RL)

    assert off.tolist() == [[15.0, 45.0, 80.0]]


def test_filling_with_nothing_counts_all_draws_and_leaving_out_those_that_have_all():
    """Ten draws off by 1 in each stretch but for scatter; five without a third one."""
    off = 1.0 + np.random.default_rng(0).normal(0, 0.5, (10, 3))
    off[5:, 2] = np.nan
    told = _stretch_tests([off], [np.nan_to_num(off)])

    assert told["stretch_p"] == told["stretch_p_ranked"] == _hotelling(np.nan_to_num(off))
    assert told["stretch_p_left_out"] == _hotelling(off[:5])
