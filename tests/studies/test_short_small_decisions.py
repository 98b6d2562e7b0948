"""What choosing by a short look or a small model means, found in made-up runs whose truth is known."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-short-small"))

import short_small_decisions as decisions
from short_small_arms import arm
from short_small_case import analysed


@pytest.fixture(scope="module")
def found():
    return analysed()


class TestShort:
    def test_an_early_look_is_misled_by_what_rises_first(self, found):
        told = found["early"]["large"]["0.25"]["at_end"]
        four = told["seeds"]["4"]

        assert told["all_choose"] == "no KL"
        assert four["chosen"] == {"no KL": 1.0}
        assert four["lost"]["low"] < 0.84 < four["lost"]["high"]  # of the last two looks
        assert four["minus_always"][arm(0.15)]["high"] < 0
        assert told["rank"]["high"] < 0.5

    def test_half_of_the_steps_tell_more_than_a_quarter(self, found):
        own = found["early"]["large"]

        assert own["0.5"]["at_end"]["rank"]["mean"] > own["0.25"]["at_end"]["rank"]["mean"]
        assert own["1"]["at_end"]["rank"]["mean"] > 0.9

    def test_a_stop_after_a_quarter_of_rising_runs_is_too_early(self, found):
        """Gold of .15 rises to the end: .5 at step 15, .9 at 60."""
        told = found["small"]["small"]["0.25"]["look_stop"]["seeds"]["4"]
        whole = found["small"]["small"]["1"]["look_stop"]["seeds"]["4"]

        assert told["stop_steps"] == {"15": 1.0}
        assert whole["stop_costs"]["mean"] == pytest.approx(0.0, abs=0.05)
        assert whole["mean_stop_step"] > 55
        assert whole["lost"]["high"] < 0.1 < told["lost"]["low"]


class TestSmall:
    def test_a_small_model_of_the_same_order_chooses_right(self, found):
        told = found["small"]["small"]["1"]["at_end"]

        assert told["all_choose"] == found["best"]["at_end"] == arm(0.15)
        assert told["rank"]["low"] > 0.8
        assert told["seeds"]["1"]["lost"]["high"] < 0.05

    def test_one_of_another_order_does_not(self):
        told = analysed(flip_small=True)["small"]["small"]["1"]["at_end"]

        assert told["all_choose"] == arm(0.05)
        assert told["rank"]["mean"] < 0.5
        assert told["seeds"]["4"]["lost"]["mean"] == pytest.approx(
            0.47, abs=0.04
        )  # the last two looks

    def test_cost_is_time_by_model_and_share_and_number_of_seeds(self, found):
        assert found["small"]["small"]["0.25"]["cost"] == pytest.approx(1 / 16)
        assert found["small"]["small"]["0.25"]["at_end"]["seeds"]["4"]["cost"] == pytest.approx(
            1 / 4
        )
        assert found["early"]["large"]["0.5"]["cost"] == pytest.approx(0.5)
        assert found["lora_for_full"]["1"]["cost"] == pytest.approx(1.0)

    def test_what_costs_the_same_is_compared(self, found):
        own = found["small"]["small"]
        quarter = own["0.25"]["at_end"]["seeds"]["4"]
        for share, num in (("0.5", "2"), ("1", "1")):
            less = own[share]["at_end"]["seeds"][num]
            assert less["cost"] == pytest.approx(quarter["cost"])
            gain = less["minus_random"]["mean"] - quarter["minus_random"]["mean"]
            assert less["minus_four_quarters"]["mean"] == pytest.approx(gain)
        assert "minus_four_quarters" not in own["1"]["at_end"]["seeds"]["2"]


class TestConstants:
    def test_what_is_lost_without_a_look_is_that_which_was_put_in(self, found):
        end = found["constants"]["at_end"]
        late = [0.0, 0.4, 0.9, 0.7, 0.3]

        assert end[arm(0.15)]["mean"] == 0
        assert end[arm(0.05)]["mean"] == pytest.approx(0.47, abs=0.03)  # the last two looks
        assert end["random"]["mean"] == pytest.approx(0.9 - np.mean(late), abs=0.04)
        assert end["random_without_largest"]["mean"] == pytest.approx(
            0.9 - np.mean(late[:-1]), abs=0.04
        )

    def test_without_a_look_no_stop_is_known(self):
        """Two settings on three seeds: the first falls after its peak, the second stays."""
        falls = np.array([[0.0, 2.0, 1.0, 1.0]] * 3) + np.array([[0.0], [0.1], [-0.1]])
        stays = np.array([[0.0, 1.5, 1.5, 1.5]] * 3) + np.array([[0.0], [0.1], [-0.1]])
        lost = decisions.constants({"falls": falls, "stays": stays})

        means = {goal: [one["mean"] for one in lost[goal].values()][:2] for goal in lost}
        assert means["stopped"] == pytest.approx([0.0, 0.5])
        assert means["at_end"] == pytest.approx([0.5, 0.0])
        assert means["look_stop"] == pytest.approx([1.0, 0.5])
