"""The penalties study: what more beta does to KL, and evaluations at which KL leapt."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from penalties_case import analyse, made_up
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-penalties"))

from experiment_intervals import factor_at_once, told
from penalties_dial import dial_of


def kl_by_seed() -> dict[str, np.ndarray]:
    """k1-reward's KL halves, that of k3-reward stays, up and down by seed; no noise in the first."""
    base = np.array([1.0, 2.0, 4.0, 8.0])
    up_and_down = np.array([1.1, 1 / 1.1, 1.1, 1 / 1.1])
    return {
        "no KL": 10 * base,
        "k1-reward 0.05": 4 * base,
        "k1-reward 0.15": base,
        "k1-reward 0.5": base / 2,
        "k3-reward 0.15": 3 * base,
        "k3-reward 0.5": 3 * base * up_and_down,
    }


class TestDial:
    def test_factors_are_taken_seed_by_seed(self):
        found = dial_of(kl_by_seed())

        assert set(found) == {"0.05 to 0.15", "0.15 to 0.5"}
        assert set(found["0.05 to 0.15"]) == {"k1-reward"}
        one = found["0.05 to 0.15"]["k1-reward"]["factor"]
        # Seeds differ eightfold in KL and not at all in the factor.
        assert (one["mean"], one["low"], one["high"]) == pytest.approx((0.25, 0.25, 0.25))
        assert found["0.15 to 0.5"]["k1-reward"]["factor"]["mean"] == pytest.approx(0.5)
        assert found["0.15 to 0.5"]["k1-reward"]["seeds_lower"] == 4

    def test_a_dial_that_does_not_turn_is_told_from_one_that_does(self):
        one = dial_of(kl_by_seed())["0.15 to 0.5"]["k3-reward"]

        assert one["factor"]["mean"] == pytest.approx(1)
        assert told(one["factor"], 1.0) == "untold"
        assert (one["seeds_lower"], one["seeds"]) == (2, 4)
        assert one["to_k1_reward"]["mean"] == pytest.approx(2)
        assert told(one["to_k1_reward"], 1.0) == "above"

    def test_the_penalties_of_one_pair_of_betas_hold_at_once(self):
        one = dial_of(kl_by_seed())["0.15 to 0.5"]["k3-reward"]

        logs = np.log([1.1, 1 / 1.1, 1.1, 1 / 1.1])
        assert one["factor"]["half"] == pytest.approx(factor_at_once(logs, 2)["half"])
        assert one["to_k1_reward"]["half"] == pytest.approx(factor_at_once(logs, 1)["half"])

    def test_along_the_run_and_at_the_end_it_is_that_of_the_runs(self):
        found = analyse(made_up())["dial"]

        for when in ("run", "end"):
            own = found[when]["0.15 to 0.5"]
            assert own["k2-loss"]["factor"]["mean"] == pytest.approx(1 / 3, rel=0.15)
            assert told(own["k1-loss"]["factor"], 1.0) == "untold"
            assert told(own["k1-loss"]["to_k1_reward"], 1.0) == "above"


class TestLeaps:
    def test_a_run_that_leapt_and_came_back_is_named(self):
        runs = made_up()
        here = (runs["arm"] == "k3-reward 0.15") & (runs["seed"] == 106) & (runs["step"] == 25)
        runs.loc[here, ["kl_seq", "gold"]] = 30.0, 0.25

        found = analyse(runs)["leaps"]

        assert found["k3-reward 0.15"] == [{"seed": 106, "step": 25, "kl": 30.0, "gold": 0.25}]
        assert [name for name, own in found.items() if own] == ["k3-reward 0.15"]

    def test_a_run_that_stays_up_did_not_leap(self):
        runs = made_up()
        runs.loc[(runs["arm"] == "k2-loss 0.15") & (runs["step"] >= 30), "kl_seq"] *= 20

        assert analyse(runs)["leaps"]["k2-loss 0.15"] == []
