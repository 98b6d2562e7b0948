"""What the betas are worth on one model, found in made-up runs whose truth is known."""

from __future__ import annotations

import sys

import pytest
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-short-small"))

from short_small_analysis import against_constants, shared_seeds, with_seeds
from short_small_arms import arm
from short_small_case import analysed, made_up, study


@pytest.fixture(scope="module")
def found():
    return analysed()


class TestOneModel:
    def test_the_order_at_the_end_is_that_which_was_put_in(self, found):
        own = found["models"]["large"]

        assert own["at_end"]["best"] == arm(0.15)
        assert own["at_end"]["not_told_from_best"] == []
        assert own["at_end"]["num_apart"] == own["at_end"]["pairs"] == 10
        assert own["arms"][arm(0.15)]["at_end"]["mean"] == pytest.approx(1.1, abs=0.05)

    def test_settings_that_are_alike_are_not_told_apart(self):
        own = analysed(alike=True, seed=1)["models"]["large"]["at_end"]

        assert own["num_apart"] == 0
        assert len(own["not_told_from_best"]) == len(study.BETAS) - 1

    def test_kl_at_the_end_is_that_of_the_runs(self, found):
        arms = found["models"]["small"]["arms"]

        assert arms["no KL"]["kl_end"]["mean"] == pytest.approx(7.67, abs=0.01)
        assert arms[arm(0.5)]["kl_end"]["mean"] == pytest.approx(7.67 / 6, abs=0.01)

    def test_every_pair_is_given_among_all_and_alone(self, found):
        own = found["models"]["large"]["at_end"]
        name = f"{arm(0.15)} - no KL"

        assert len(own["differences"]) == own["pairs"]
        assert own["differences"][name]["mean"] == pytest.approx(0.84, abs=0.05)
        assert own["differences"][name]["low"] < own["alone"][name]["low"]


class TestSharedSeeds:
    def test_they_are_found_by_seed_not_by_place(self):
        """The large model has the last four seeds only."""
        runs = made_up()
        runs = runs[(runs["block"] != "large") | (runs["seed"] >= 104)]

        shared = shared_seeds(runs, "small", "large")

        assert shared == [104, 105, 106, 107]
        assert sorted(with_seeds(runs, shared)["seed"].unique()) == shared
        assert shared_seeds(runs, "small", "medium") == list(study.SEEDS)

    def test_a_seed_that_one_setting_lacks_is_not_shared(self):
        runs = made_up()
        runs = runs[
            ~((runs["block"] == "small") & (runs["arm"] == "no KL") & (runs["seed"] == 100))
        ]

        assert shared_seeds(runs, "small", "large") == list(range(101, 108))


def test_looks_are_counted_by_where_they_lie_against_good_constants():
    def one(*offs):
        return {"minus_always": {str(i): {"low": a, "high": b} for i, (a, b) in enumerate(offs)}}

    looks = [
        one((1, 2), (-1, 1)),
        one((-2, -1), (-1, 1)),
        one((-2, -1), (-3, -1)),
        one((-1, 1), (-1, 1)),
    ]
    goal = {"seeds": {str(k): look for k, look in enumerate(looks)}}
    found = against_constants([{"1": {"stopped": goal, "at_end": goal, "look_stop": goal}}])

    assert found["at_end"] == {"looks": 4, "above_any": 1, "below_any": 2, "below_both": 1}
