"""The penalties study: gold and proxy at matched KL, on made-up runs whose truth is known."""

from __future__ import annotations

import sys

import pytest
from penalties_case import analyse, made_up
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-penalties"))

from experiment_intervals import told
from penalties_matched import ENOUGH


def test_penalties_on_one_frontier_are_not_told_apart():
    found = analyse(made_up())["matched"]["to_k1_reward"]["levels"]

    for level in ("0.5", "1", "2"):
        for penalty in ("exact-full", "k2-loss", "k3-loss"):
            one = found[level][penalty]["gold"]
            assert told(one) == "untold"
            assert one["half"] < 0.15


def test_a_penalty_below_the_frontier_is_told_apart_by_what_it_is_below():
    found = analyse(made_up({"k3-loss": 0.4}))["matched"]

    assert found["to_k1_reward"]["levels"]["2"]["k3-loss"]["gold"]["mean"] == pytest.approx(
        -0.4, abs=0.06
    )
    assert told(found["to_k1_reward"]["levels"]["2"]["k3-loss"]["gold"]) == "below"
    assert told(found["to_none"]["levels"]["2"]["k3-loss"]["gold"]) == "below"
    assert told(found["to_none"]["levels"]["2"]["k2-loss"]["gold"]) == "untold"


def test_a_penalty_is_compared_with_k1_reward_of_its_own_beta():
    runs = made_up()
    for beta, more in (("0.05", 0.5), ("0.5", 1.0)):
        runs.loc[runs["arm"].str.endswith(f" {beta}") & (runs["step"] > 0), "gold"] += more

    found = analyse(runs)["matched"]["to_k1_reward"]["levels"]["0.5"]

    assert all(abs(found[p]["gold"]["mean"]) < 0.1 for p in ("exact-full", "k2-loss"))


def test_says_how_many_seeds_reached_a_kl_and_compares_none_that_too_few_did():
    found = analyse(made_up())

    assert found["reached"]["k1-reward 0.5"]["3"] == {"seeds": 0}
    assert found["reached"]["no KL"]["3"]["seeds"] == 8
    assert found["reached"]["no KL"]["3"]["step"] == pytest.approx(15, abs=1.5)
    cell = found["matched"]["to_none"]["levels"]["3"]["k2-loss"]
    assert (cell["seeds"], cell["pairs"] < 16) == (8, True)  # beta .05 reaches it, .5 does not


def test_gold_that_erodes_at_one_kl_is_seen():
    runs = made_up()
    held = runs["arm"] == "k2-loss 0.5"
    runs.loc[held, "kl_seq"] = runs.loc[held, "kl_seq"].clip(upper=0.4)
    runs.loc[held, "gold"] = 0.9 - 0.01 * runs.loc[held, "step"] + runs.loc[held, "seed"] / 1e3

    later = analyse(runs)["later"]

    assert later["k2-loss 0.5"]["mean"] == pytest.approx(-0.3, abs=0.07)  # from step 29 to 57.5
    assert told(later["k2-loss 0.5"]) == "below"
    assert told(later["k3-loss 0.5"]) == "untold"


def test_every_comparison_shown_counts_for_the_intervals():
    found = analyse(made_up())["matched"]["to_none"]

    shown = [one for level in found["levels"].values() for one in level.values() if "gold" in one]
    assert found["comparisons"] == len(shown)
    assert all(one["seeds"] >= ENOUGH for one in shown)
