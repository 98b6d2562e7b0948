"""The over-optimisation study: its analysis on made-up runs whose truth is known, and the study scaled down."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from studies_case import load_script, run_small

law = load_script("2026-11-30-law")

STEPS = np.arange(0, 61, 5)
A, START = 1.0, 0.2
HOLD = {"no KL": 9.0, "k1-reward 0.05": 4.0, "k1-reward 0.15": 3.2, "k1-reward 0.5": 1.2}
"""KL at the end, nats/sequence."""


def slope_b(proxy) -> float:
    """Better proxies have a smaller b: .08 less for four times as many comparisons."""
    place = math.log(proxy.comparisons / 100, 4)
    return 0.75 - 0.08 * place + 0.3 * (proxy.noise - 0.2) + 0.05 * (3 - proxy.layers)


def gold_at(kl, a, b) -> np.ndarray:
    d = np.sqrt(np.maximum(kl, 1e-12))
    return START + d * (a - b * np.log(d))


def one_run(rng, arm, b, noise, lift) -> pd.DataFrame:
    pace = np.exp(rng.normal(0, 0.15))
    kl = HOLD["no KL"] * pace * (STEPS / 60) ** 2
    if arm != "no KL":
        kl = HOLD[arm] * np.tanh(kl / HOLD[arm])
    gold = gold_at(kl, A + rng.normal(0, noise), b + rng.normal(0, noise))
    gold = gold + (lift if arm != "no KL" else 0.0) * (kl > 0) + rng.normal(0, noise, len(STEPS))
    rest = {"kl_token": kl / 12, "entropy_token": 0.5, "tokens": 12.0}
    return pd.DataFrame(
        {"step": STEPS, "gold": gold, "proxy": np.sqrt(kl) - 0.5, "kl_seq": kl, **rest}
    )


def made_up(seed=0, noise=0.04, lift=0.0, flat=False, bend=0.0) -> pd.DataFrame:
    """``lift``: of gold under a penalty; ``flat``: all proxies are alike; ``bend``: gold that is off the law."""
    rng = np.random.default_rng(seed)
    parts = []
    for proxy in law.LEVELS:
        b = 0.55 if flat else slope_b(proxy)
        for i, draw in enumerate(law.DRAWS):
            for arm in (law.NO_KL, law.PRICED) if proxy == law.Proxy() else (law.NO_KL,):
                run = one_run(rng, arm, b, noise, lift)
                root = np.sqrt(run["kl_seq"])
                run["gold"] += bend * root * np.log(root + 1e-12).clip(-9) ** 2
                parts.append(run.assign(block=law.block_name(proxy, draw), arm=arm, seed=100 + i))
    return pd.concat(parts, ignore_index=True)


def made_up_penalties(lift=0.0) -> pd.DataFrame:
    rng = np.random.default_rng(9)
    parts = [
        one_run(rng, arm, 0.55, 0.04, lift).assign(block="arms", arm=arm, seed=seed)
        for arm in HOLD
        for seed in range(100, 108)
    ]
    return pd.concat(parts, ignore_index=True)


def bon_tables(gain=0.5) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Best-of-n by Gao's form, d (gain - .2 d), and proxies that see gold the better the more they learned."""
    rng = np.random.default_rng(5)
    curves, facts = [], []
    for draw in law.DRAWS:
        start = START + rng.normal(0, 0.01)
        for proxy in (*law.LEVELS, None):
            level = law.SHIPPED if proxy is None else law.level_of(law.block_name(proxy, draw))
            own = gain + rng.normal(0, 0.03)
            for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128):
                kl = math.log(n) - (n - 1) / n
                gold = (
                    start
                    + math.sqrt(kl) * (own - 0.2 * math.sqrt(kl))
                    + rng.normal(0, 0.01) * (n > 1)
                )
                row = {"level": level, "draw": draw, "n": n, "kl": kl, "gold": gold, "proxy": kl}
                curves += [{"split": split, **row} for split in ("select", "train")]
            seen = 0.6 if proxy is None else 0.85 - 0.4 * slope_b(proxy)
            facts.append(
                {
                    "level": level,
                    "draw": draw,
                    "trained_on": 90,
                    "noise": 0.2,
                    "layers": 3,
                    "label_accuracy": 0.6,
                    "agreement": seen + rng.normal(0, 0.01),
                    "agreement_train": seen + 0.05 + rng.normal(0, 0.01),
                    "gold_sd": 0.95,
                }
            )
    return pd.DataFrame(curves), pd.DataFrame(facts)


def analyse(runs, gain=0.5, lift=0.0):
    return law.analyse(runs, pd.DataFrame(), *bon_tables(gain), shipped=made_up_penalties(lift))


@pytest.fixture(scope="module")
def found():
    return analyse(made_up())


def holds(interval, truth) -> bool:
    return interval["low"] <= truth <= interval["high"]


MIDDLE = law.level_of(law.block_name(law.Proxy(), 0))


class TestLaw:
    def test_a_b_and_the_kl_of_the_peak_are_those_that_were_put_in(self, found):
        own, b = found["levels"][MIDDLE]["law"], slope_b(law.Proxy())

        assert holds(own["a"], A)
        assert holds(own["b"], b)
        assert own["kl_low"] < math.exp(2 * (A / b - 1)) < own["kl_high"]

    def test_intervals_hold_the_truth_as_often_as_they_say(self):
        hits = []
        for seed in range(60):
            rng = np.random.default_rng(seed)
            runs = [one_run(rng, law.NO_KL, 0.6, 0.06, 0.0) for _ in law.DRAWS]
            gold, kl = (np.array([r[c] for r in runs]) for c in ("gold", "kl_seq"))
            gold[:, 0] = START
            own = law._law(law.Runs(gold, kl, kl, tuple(STEPS)), law.LawForm.RL)
            truth = math.exp(2 * (A / 0.6 - 1))
            hits.append(
                (
                    holds(own["a"], A),
                    holds(own["b"], 0.6),
                    own["kl_low"] < truth < own["kl_high"],
                    own["bend_p"] > 0.05,
                    own["stretch_p"] > 0.05,
                )
            )

        assert (np.mean(hits, axis=0) > 0.88).all()

    def test_gold_on_the_law_is_not_rejected_and_gold_off_it_is(self, found):
        assert found["reject"]["rl"] == []
        assert found["reject"]["together"]["misfit_p"] > 0.05
        assert len(analyse(made_up(bend=0.4, noise=0.02))["reject"]["rl"]) == len(law.LEVELS)

    def test_the_peak_of_each_draw_is_read_where_the_others_have_theirs(self):
        """No signal: the highest of twelve is biased, the stopped one is not."""
        rng = np.random.default_rng(0)
        gold = rng.normal(0, 0.2, (8, 13))
        own = law.Runs(gold, gold, np.tile(np.linspace(0, 9, 13), (8, 1)), tuple(STEPS))
        told = law._level(own, bon_tables()[1].head(8))["peak"]

        assert holds(told["gain"], -float(gold[:, 0].mean()))
        assert told["highest"]["low"] > 0.1


class TestTrends:
    def test_more_comparisons_lower_b_leave_a_and_raise_the_peak(self, found):
        told = found["trends"]["comparisons"]

        assert holds(told["b"], -0.08)
        assert holds(told["a"], 0.0)
        assert told["peak_gain"]["low"] > 0
        assert told["peak_kl_factor"]["mean"] > 1
        assert told["agreement"]["low"] > 0

    def test_proxies_that_are_alike_show_no_trend(self):
        told = analyse(made_up(flat=True, seed=3))["trends"]

        assert all(holds(told[axis][m], 0.0) for axis in law.AXES for m in ("peak_gain", "b", "a"))

    def test_the_peak_rises_with_agreement(self, found):
        assert found["by_agreement"]["peak_gain_by_agreement"]["low"] > 0


class TestBeta:
    def test_one_curve_is_not_told_apart_but_the_speed_along_it_is(self, found):
        own = found["frontier"]["middle"][law.PRICED]

        assert holds(own["at_free"], 0.0)
        assert holds(own["at_priced"], 0.0)
        assert holds(own["held"], 0.0)
        assert all(holds(own["at_kl"][kl], 0.0) for kl in ("0.5", "1", "1.5"))
        assert own["speed"]["60"]["high"] < 0.6

    @pytest.mark.parametrize("where", ["middle", "shipped"])
    def test_a_curve_that_lies_higher_is(self, where):
        own = analyse(made_up(lift=0.3), lift=0.3)["frontier"][where][law.PRICED]

        assert holds(own["at_free"], 0.3)
        assert own["at_free"]["low"] > 0
        assert own["held"]["low"] > 0

    def test_a_kl_that_was_hardly_reached_has_no_figure(self, found):
        cell = found["frontier"]["shipped"]["k1-reward 0.5"]["at_kl"]["3"]

        assert cell == {"mean": None, "num": 0}


class TestBestOfN:
    def test_its_law_and_peak_are_those_that_were_put_in(self, found):
        own = found["levels"][MIDDLE]["best_of_n"]

        assert holds(own["law"]["a"], 0.5)
        assert holds(own["law"]["b"], 0.2)
        assert own["peak"]["kl"] == pytest.approx((0.5 / 0.4) ** 2, abs=0.5)

    def test_what_rl_has_more_is_read_at_its_own_evaluations(self, found):
        """By hand: d (a - b ln d) less d (.5 - .2 d) at the KL of the evaluations at steps 10 to 20."""
        d = np.sqrt(9 * (np.array([10, 15, 20]) / 60) ** 2)
        truth = np.mean(d * (A - slope_b(law.Proxy()) * np.log(d)) - d * (0.5 - 0.2 * d))

        cell = found["levels"][MIDDLE]["best_of_n"]["rl_less_bon"]["0.25 to 1.5"]

        assert cell["mean"] == pytest.approx(truth, abs=0.08)
        assert found[law.SHIPPED]["best_of_n"]["rl_less_bon"]["0.25 to 1.5"]["low"] > 0


class TestEqualKl:
    def test_a_curve_that_is_read_between_two_points_of_a_hump_looks_worse(self):
        """Same hump, 13 evaluations and 4: each way errs to the disadvantage of the one that is interpolated."""
        kl = np.tile(np.linspace(0, 8, 13), (8, 1))
        gold = np.sqrt(kl) * (1 - 0.35 * np.sqrt(kl))
        fine = law.Runs(gold, gold, kl, tuple(STEPS))
        coarse = law.Runs(gold[:, ::4], gold[:, ::4], kl[:, ::4], tuple(STEPS[::4]))

        assert law._off_at(fine, coarse).mean() == pytest.approx(0.0, abs=1e-9)
        assert law._off_at(coarse, fine).mean() < -0.01

    def test_an_evaluation_that_the_other_run_never_reached_does_not_count(self):
        kl = np.tile([0.0, 1.0, 2.0], (8, 1))
        near, far = (law.Runs(kl, kl, kl * by, (0, 5, 10)) for by in (0.1, 1.0))

        assert np.isnan(law._off_at(near, far)).all()


def test_tables_and_figures_are_made_of_what_was_found(found, tmp_path: Path, monkeypatch):
    bon_tables()[0].to_csv(tmp_path / "bon.csv", index=False)
    made_up_penalties().to_csv(tmp_path / "penalties.csv", index=False)
    monkeypatch.setattr(law, "PENALTIES", tmp_path / "penalties.csv")

    written = law.tables(found)
    law.draw(made_up(), pd.DataFrame(), found, tmp_path)

    assert written["levels"].count("\n") == 1 + len(law.LEVELS)
    assert written["frontier"].count("\n") == 1 + 4
    assert "nan" not in "".join(written.values())
    assert {p.name for p in tmp_path.glob("*.png")} == {"law.png", "quality.png", "beta.png"}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return run_small("2026-11-30-law", tmp_path_factory.mktemp("law"))


@pytest.mark.slow
class TestScaledDown:
    def test_a_proxy_that_sees_more_gets_more_gold_out_of_the_same_steps(self, small):
        few, many = (small["levels"][law.level_of(law.block_name(p, 0))] for p in law.SMALL_LEVELS)

        assert many["agreement"]["mean"] > few["agreement"]["mean"] + 0.05
        assert many["peak"]["highest"]["mean"] > few["peak"]["highest"]["mean"] + 0.1
        assert many["best_of_n"]["peak"]["gain"]["mean"] > few["best_of_n"]["peak"]["gain"]["mean"]
