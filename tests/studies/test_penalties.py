"""The penalties study: its analysis on made-up runs whose truth is known, and the study scaled down."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from studies_case import load_script, run_small

study = load_script("2026-11-30-penalties")

EVALS = 13
HOLD = {"no KL": 12.0, "0.05": 6.0, "0.15": 2.4, "0.5": 0.8}
"""KL at the end, nats/sequence."""


def frontier(kl: np.ndarray) -> np.ndarray:
    """Gold rises until 2.25 nats/sequence and falls after it."""
    return 0.2 + 1.5 * np.sqrt(kl) - 0.5 * kl


def made_up(
    lower: dict[str, float] | None = None,
    idle: bool = True,
    collapse: float = -1.5,
    noise: float = 0.02,
) -> pd.DataFrame:
    """Runs of every setting on one frontier; ``lower``: gold of a penalty below it at every KL above 0."""
    rng = np.random.default_rng(7)
    rows = []
    for name in study.blocks(False, None)["arms"].arms:
        penalty, _, beta = name.rpartition(" ")
        is_held = name != "no KL" and not (penalty == "k1-loss" and idle)
        final = HOLD[beta] if is_held else HOLD["no KL"]
        for seed in study.SEEDS:
            pace = np.exp(rng.normal(0, 0.1))
            kl = final * pace * np.linspace(0, 1, EVALS)
            gold = frontier(kl) - (lower or {}).get(penalty, 0.0) * (kl > 0)
            if penalty == "k3-reward":
                gold = 0.2 + collapse * np.linspace(0, 1, EVALS)
            gold = gold + rng.normal(0, noise, EVALS)
            for c in range(EVALS):
                rows.append(
                    {
                        "block": "arms",
                        "arm": name,
                        "seed": seed,
                        "step": 5 * c,
                        "gold": gold[c],
                        "proxy": kl[c] ** 0.5 - 0.5,
                        "kl_seq": kl[c],
                        "kl_token": kl[c] / 12,
                        "entropy_token": 0.5,
                        "tokens": 12.0,
                    }
                )
    return pd.DataFrame(rows)


def steps_of(runs: pd.DataFrame) -> pd.DataFrame:
    """A step for each evaluation."""
    return runs.assign(step=runs["step"] // 5 + 1)


def analyse(runs: pd.DataFrame) -> dict:
    return study.analyse(runs, steps_of(runs))


class TestMatchedKl:
    def test_penalties_on_one_frontier_are_not_told_apart(self):
        found = analyse(made_up())["matched"]["to_k1_reward"]["levels"]

        for level in ("0.5", "1", "2"):
            for penalty in ("exact-full", "k2-loss", "k3-loss"):
                one = found[level][penalty]["gold"]
                assert study.told(one) == "untold"
                assert one["half"] < 0.15

    def test_a_penalty_below_the_frontier_is_told_apart_by_what_it_is_below(self):
        found = analyse(made_up({"k3-loss": 0.4}))["matched"]

        assert found["to_k1_reward"]["levels"]["2"]["k3-loss"]["gold"]["mean"] == pytest.approx(
            -0.4, abs=0.06
        )
        assert study.told(found["to_k1_reward"]["levels"]["2"]["k3-loss"]["gold"]) == "below"
        assert study.told(found["to_none"]["levels"]["2"]["k3-loss"]["gold"]) == "below"
        assert study.told(found["to_none"]["levels"]["2"]["k2-loss"]["gold"]) == "untold"

    def test_a_penalty_is_compared_with_k1_reward_of_its_own_beta(self):
        runs = made_up()
        for beta, more in (("0.05", 0.5), ("0.5", 1.0)):
            runs.loc[runs["arm"].str.endswith(f" {beta}") & (runs["step"] > 0), "gold"] += more

        found = analyse(runs)["matched"]["to_k1_reward"]["levels"]["0.5"]

        assert all(abs(found[p]["gold"]["mean"]) < 0.1 for p in ("exact-full", "k2-loss"))

    def test_says_how_many_seeds_reached_a_kl_and_compares_none_that_too_few_did(self):
        found = analyse(made_up())

        assert found["reached"]["k1-reward 0.5"]["3"] == {"seeds": 0}
        assert found["reached"]["no KL"]["3"]["seeds"] == 8
        assert found["reached"]["no KL"]["3"]["step"] == pytest.approx(15, abs=1.5)
        cell = found["matched"]["to_none"]["levels"]["3"]["k2-loss"]
        assert (cell["seeds"], cell["pairs"] < 16) == (8, True)  # beta .05 reaches it, .5 does not

    def test_gold_that_erodes_at_one_kl_is_seen(self):
        runs = made_up()
        held = runs["arm"] == "k2-loss 0.5"
        runs.loc[held, "kl_seq"] = runs.loc[held, "kl_seq"].clip(upper=0.4)
        runs.loc[held, "gold"] = 0.9 - 0.01 * runs.loc[held, "step"] + runs.loc[held, "seed"] / 1e3

        later = analyse(runs)["later"]

        assert later["k2-loss 0.5"]["mean"] == pytest.approx(-0.3, abs=0.07)  # from step 29 to 57.5
        assert study.told(later["k2-loss 0.5"]) == "below"
        assert study.told(later["k3-loss 0.5"]) == "untold"

    def test_every_comparison_shown_counts_for_the_intervals(self):
        found = analyse(made_up())["matched"]["to_none"]

        shown = [
            one for level in found["levels"].values() for one in level.values() if "gold" in one
        ]
        assert found["comparisons"] == len(shown)
        assert all(one["seeds"] >= study.ENOUGH for one in shown)


class TestKlAtTheEnd:
    def test_a_penalty_that_pulls_nowhere_is_as_no_kl_and_not_as_k1_reward(self):
        found = analyse(made_up())

        one = found["to_none"]["k1-loss 0.5"]["kl_end"]
        assert one["low"] < 1 < one["high"]
        assert found["to_k1_reward"]["k1-loss 0.5"]["kl_end"]["mean"] == pytest.approx(15, rel=0.15)
        assert (
            found["claims"]["k1-loss does nothing"]["k1-loss 0.5"]["verdict"] == "not contradicted"
        )

    def test_the_claim_fails_where_it_pulls(self):
        claims = analyse(made_up(idle=False))["claims"]

        assert claims["k1-loss does nothing"]["k1-loss 0.5"]["verdict"] == "does not"

    def test_a_ratio_is_that_of_the_runs(self):
        found = analyse(made_up())["to_none"]["k2-loss 0.15"]["kl_end"]

        assert found["low"] < 0.2 < found["high"]
        assert found["half"] == pytest.approx(found["high"] / found["mean"])

    def test_betas_together_and_along_the_run_tell_the_same(self):
        found = analyse(made_up())

        pooled = found["pooled_kl"]
        for when in ("end", "run"):
            one = pooled[when]["k2-loss"]["to_none"]
            assert one["low"] < math.sqrt(0.2 * 0.8 / 12) < one["high"]
            assert study.told(pooled[when]["k1-loss"]["to_none"], 1.0) == "untold"
        assert found["beta_response"]["k2-loss"]["mean"] == pytest.approx(1 / 3, rel=0.15)
        assert study.told(found["beta_response"]["k1-loss"], 1.0) == "untold"


class TestClaims:
    def test_k3_reward_that_ends_below_its_start_has_collapsed(self):
        found = analyse(made_up())

        assert found["claims"]["k3-reward collapses"]["k3-reward 0.15"]["verdict"] == "holds"
        assert found["settings"]["k3-reward 0.15"]["seeds_below_start"] == 8
        assert found["settings"]["k1-reward 0.15"]["seeds_below_start"] == 0

    def test_k3_reward_that_ends_above_its_start_has_not(self):
        claims = analyse(made_up(collapse=0.5))["claims"]

        assert claims["k3-reward collapses"]["k3-reward 0.5"]["verdict"] == "does not"

    def test_the_best_is_named_only_where_all_others_are_told_apart_below_it(self):
        below = dict.fromkeys(("exact-full", "k2-loss", "k3-loss", "k1-loss"), 0.5)

        for lower, verdict in (
            (below, "holds"),
            ({}, "can't be told"),
            ({"k1-reward": 0.5}, "does not"),
        ):
            claim = analyse(made_up(lower, noise=0.06))["claims"]["k1-reward is best"]["stopped"]
            assert claim["verdict"] == verdict

    def test_beta_and_stop_are_chosen_on_other_seeds(self):
        rng = np.random.default_rng(0)

        draws = [study.best_when_stopped(rng.normal(size=(3, 8, 14))).mean() for _ in range(200)]

        assert abs(np.mean(draws)) < 0.2  # the best of 39 is at 2.1 each


class TestIntervals:
    def test_several_hold_at_once(self):
        rng = np.random.default_rng(1)

        hits = [
            all(
                one["low"] <= 0 <= one["high"]
                for one in (study.at_once(v, 12) for v in rng.normal(size=(12, 8)))
            )
            for _ in range(500)
        ]

        assert 0.92 < np.mean(hits) < 0.98

    def test_the_ratio_of_two_spreads_is_covered(self):
        rng = np.random.default_rng(2)
        common = rng.normal(size=(500, 8))
        a, b = common + rng.normal(size=(500, 8)), 3 * (common + rng.normal(size=(500, 8)))

        found = [study.spread_ratio(one, other) for one, other in zip(a, b, strict=True)]

        assert 0.92 < np.mean([one["low"] < 1 / 3 < one["high"] for one in found]) < 0.98

    def test_one_seed_tells_nothing(self):
        assert study.told(study.at_once(np.array([3.0]))) == "untold"


def test_a_run_that_ended_early_is_named_and_keeps_its_last_value():
    runs = made_up()
    runs = runs[~((runs["arm"] == "no KL") & (runs["seed"] == 103) & (runs["step"] > 30))]

    found = analyse(runs)

    assert found["ended_early"] == ["no KL, seed 103"]
    assert found["settings"]["no KL"]["gold_end"]["num"] == 8


def test_tables_and_figures_are_made_of_what_was_found(tmp_path):
    runs = made_up()
    results = analyse(runs)

    written = study.tables(results)
    study.draw(runs, steps_of(runs), results, tmp_path)

    assert written["settings"].count("\n") == 1 + 17
    assert written["matched-k1"].count("\n") == 1 + 4 * 5
    assert "nan" not in "".join(written.values())
    assert {p.name for p in tmp_path.iterdir()} == {"frontier.png", "ends.png"}
    assert math.isfinite(results["best_beta"]["k2-loss"]["end"]["gold"]["mean"])


@pytest.fixture(scope="module")
def scaled_down(tmp_path_factory):
    return run_small("2026-11-30-penalties", tmp_path_factory.mktemp("penalties"))


@pytest.mark.slow
def test_k1_in_the_reward_holds_kl_and_k1_in_the_loss_does_not(scaled_down):
    none, reward, loss = (
        scaled_down["settings"][name]["kl_end"]["mean"]
        for name in ("no KL", "k1-reward 0.5", "k1-loss 0.5")
    )

    assert reward < none / 2
    assert reward < loss / 2
