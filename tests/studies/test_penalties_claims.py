"""The penalties study: its verdicts on the three published findings, on made-up runs whose truth is known."""

from __future__ import annotations

import numpy as np
from penalties_case import analyse, made_up


def test_k3_reward_that_ends_below_its_start_has_collapsed():
    found = analyse(made_up())

    assert found["claims"]["k3-reward collapses"]["k3-reward 0.15"]["verdict"] == "holds"
    assert found["settings"]["k3-reward 0.15"]["seeds_below_start"] == 8
    assert found["settings"]["k1-reward 0.15"]["seeds_below_start"] == 0


def test_k3_reward_that_ends_above_its_start_has_not():
    claims = analyse(made_up(collapse=0.5))["claims"]

    assert claims["k3-reward collapses"]["k3-reward 0.5"]["verdict"] == "does not"


def test_the_best_is_named_only_where_all_others_are_told_apart_below_it():
    below = dict.fromkeys(("exact-full", "k2-loss", "k3-loss", "k1-loss"), 0.5)

    for lower, verdict in (
        (below, "holds"),
        ({}, "can't be told"),
        ({"k1-reward": 0.5}, "does not"),
    ):
        claim = analyse(made_up(lower, noise=0.06))["claims"]["k1-reward is best"]["stopped"]
        assert claim["verdict"] == verdict


def test_k1_loss_that_pulls_does_something():
    claims = analyse(made_up(idle=False))["claims"]

    assert claims["k1-loss does nothing"]["k1-loss 0.5"]["verdict"] == "does not"


class TestAfterwards:
    def test_along_the_run_k1_loss_is_judged_by_the_same_rule(self):
        for idle, verdict in ((True, "not contradicted"), (False, "does not")):
            found = analyse(made_up(idle=idle))
            one = found["claims"]["afterwards"]["k1-loss does nothing"]["k1-loss 0.5"]
            assert one["verdict"] == verdict
            assert one["to_none"] == found["to_none"]["k1-loss 0.5"]["kl_run"]
            assert one["to_k1_reward"] == found["to_k1_reward"]["k1-loss 0.5"]["kl_run"]

    def test_a_rule_that_lets_a_working_penalty_pass_is_seen(self):
        runs = made_up()
        held = analyse(runs)["claims"]["afterwards"]["the rule of k1-loss"]
        assert held["end"]["passes"] == ["k1-loss 0.15", "k1-loss 0.5"]
        # Without KL, KL ends anywhere; k3-reward keeps it down, less than k1-reward does.
        late = (runs["arm"] == "no KL") & (runs["step"] == 60)
        runs.loc[late, "kl_seq"] *= np.where(runs.loc[late, "seed"] % 2, 40.0, 0.05)
        runs.loc[runs["arm"].str.startswith("k3-reward"), "kl_seq"] *= 2

        rule = analyse(runs)["claims"]["afterwards"]["the rule of k1-loss"]

        assert "k3-reward 0.15" in rule["end"]["passes"]
        assert len(rule["end"]["not_told_from_none"]) > len(rule["run"]["not_told_from_none"])
        assert rule["run"]["passes"] == ["k1-loss 0.15", "k1-loss 0.5"]

    def test_k1_loss_that_ends_below_its_start_has_collapsed(self):
        runs = made_up()
        low = runs["arm"].str.startswith("k1-loss") & (runs["step"] > 0)
        runs.loc[low, "gold"] = -1.0 + runs.loc[low, "seed"] / 1e3

        after = analyse(runs)["claims"]["afterwards"]["k1-loss collapses"]

        assert {one["verdict"] for one in after.values()} == {"holds"}

    def test_k3_loss_below_k1_reward_is_told(self):
        for lower, verdict in (({"k3-loss": 0.5}, "holds"), ({"k1-reward": 0.5}, "does not")):
            found = analyse(made_up(lower, noise=0.06))
            after = found["claims"]["afterwards"]["k3-loss is below k1-reward"]["stopped"]
            assert after["verdict"] == verdict
            assert after["to_k1_reward"] == found["best_beta"]["k3-loss"]["stopped"]["to_k1_reward"]
