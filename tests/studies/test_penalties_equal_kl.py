"""The penalties study: the sound penalties together against no KL, and what reading between evaluations adds."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from penalties_case import analyse, frontier, made_up
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-penalties"))

from experiment_intervals import told
from penalties_equal_kl import at_evaluations, read_as_coarsely

FINE = np.linspace(0, 4, 161)[None]
"""KL of a slow run's evaluations, nats/sequence."""
COARSE = np.array([[0.0, 1.0, 4.0]])
"""Of a fast run's."""


class TestReadAsCoarsely:
    def test_it_is_the_chord_between_the_other_runs_evaluations(self):
        at_2 = read_as_coarsely(frontier(FINE), FINE, COARSE, 2.0)[0]

        # By hand: a third of the way from 1 to 4 nats.
        assert at_2 == pytest.approx(frontier(1.0) + (frontier(4.0) - frontier(1.0)) / 3)
        assert at_2 < frontier(2.0) - 0.1

    def test_a_run_that_stays_below_the_others_next_evaluation_has_none(self):
        short = FINE[:, :120]  # up to 2.975 nats

        assert np.isnan(read_as_coarsely(frontier(short), short, COARSE, 2.0)[0])
        assert np.isfinite(read_as_coarsely(frontier(short), short, COARSE, 0.5)[0])

    def test_nor_has_one_whose_other_run_never_gets_there(self):
        assert np.isnan(read_as_coarsely(frontier(FINE), FINE, COARSE, 5.0)[0])


class TestAtEvaluations:
    def test_one_frontier_has_no_difference_there(self):
        off = at_evaluations(frontier(FINE), FINE, frontier(COARSE), COARSE)

        assert off[0] == pytest.approx(0, abs=1e-9)

    def test_a_difference_is_the_mean_over_the_evaluations_that_were_reached(self):
        more = np.where(FINE > 2, 0.3, 0.1) * (FINE > 0)

        off = at_evaluations(frontier(FINE) + more, FINE, frontier(COARSE), COARSE)

        assert off[0] == pytest.approx((0.1 + 0.3) / 2)

    def test_evaluations_beyond_what_the_run_reached_are_left_out(self):
        short = FINE[:, :120]  # up to 2.975 nats

        off = at_evaluations(frontier(short) + 0.1, short, frontier(COARSE), COARSE)

        assert off[0] == pytest.approx(0.1)

    def test_its_error_is_to_the_disadvantage_of_the_run_that_is_read_between(self):
        off = at_evaluations(frontier(COARSE), COARSE, frontier(FINE), FINE)

        assert off[0] < -0.05


class TestPooled:
    def test_on_one_frontier_a_straight_line_flatters_the_slow_runs_and_the_coarse_reading_does_not(
        self,
    ):
        found = analyse(made_up(noise=1e-4))["matched"]["pooled_to_none"]["levels"]

        one = found["0.5"]["gold"]
        # No KL is evaluated about every nat: half way from 0.2 to 1.2, where the frontier has 1.01.
        assert one["between"]["mean"] == pytest.approx(0.3, abs=0.05)
        assert told(one["between"]) == "above"
        assert one["coarse"]["mean"] == pytest.approx(0, abs=0.02)
        for level in ("0.5", "1", "2"):
            cell = found[level]["gold"]
            assert cell["flattery"]["mean"] == pytest.approx(
                cell["between_there"]["mean"] - cell["coarse"]["mean"]
            )

    def test_a_penalty_below_the_frontier_is_below_in_either_reading(self):
        lower = dict.fromkeys(("k1-reward", "exact-full", "k2-loss", "k3-loss"), 0.4)

        cell = analyse(made_up(lower))["matched"]["pooled_to_none"]["levels"]["2"]["gold"]

        assert cell["coarse"]["mean"] == pytest.approx(-0.4, abs=0.05)
        assert told(cell["coarse"]) == told(cell["between"]) == "below"

    def test_only_the_sound_penalties_at_their_lower_betas_count(self):
        runs = made_up()
        before = analyse(runs)["matched"]["pooled_to_none"]
        other = runs["arm"].str.endswith(" 0.5") | runs["arm"].str.startswith(("k1-l", "k3-r"))
        runs.loc[other & (runs["step"] > 0), "gold"] += 1.0

        assert analyse(runs)["matched"]["pooled_to_none"] == before
        assert before["levels"]["0.5"]["gold"]["between"]["pairs"] == 8 * 8

    def test_four_levels_hold_at_once(self):
        cell = analyse(made_up())["matched"]["pooled_to_none"]["levels"]["1"]["gold"]

        # Student's t on 7 degrees of freedom: 3.335 for four at once, 2.365 alone.
        ratio = cell["between"]["half"] / cell["between_alone"]["half"]
        assert ratio == pytest.approx(3.3353 / 2.3646, rel=1e-3)
