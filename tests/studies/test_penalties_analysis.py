"""The penalties study: its analysis on made-up runs whose truth is known, and the intervals that it gives."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from penalties_case import analyse, made_up
from scipy import stats
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-penalties"))

from experiment_intervals import at_once, told


class TestKlAtTheEnd:
    def test_a_penalty_that_pulls_nowhere_is_as_no_kl_and_not_as_k1_reward(self):
        found = analyse(made_up())

        one = found["to_none"]["k1-loss 0.5"]["kl_end"]
        assert one["low"] < 1 < one["high"]
        assert found["to_k1_reward"]["k1-loss 0.5"]["kl_end"]["mean"] == pytest.approx(15, rel=0.15)
        assert (
            found["claims"]["k1-loss does nothing"]["k1-loss 0.5"]["verdict"] == "not contradicted"
        )

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
            assert told(pooled[when]["k1-loss"]["to_none"], 1.0) == "untold"


class TestIntervals:
    def test_several_hold_at_once(self):
        rng = np.random.default_rng(1)

        hits = [
            all(
                one["low"] <= 0 <= one["high"]
                for one in (at_once(v, 12) for v in rng.normal(size=(12, 8)))
            )
            for _ in range(500)
        ]

        assert 0.92 < np.mean(hits) < 0.98

    def test_one_seed_tells_nothing(self):
        assert told(at_once(np.array([3.0]))) == "untold"


def test_a_run_that_ended_early_is_named_and_keeps_its_last_value():
    runs = made_up()
    runs = runs[~((runs["arm"] == "no KL") & (runs["seed"] == 103) & (runs["step"] > 30))]

    found = analyse(runs)

    assert found["ended_early"] == ["no KL, seed 103"]
    assert found["settings"]["no KL"]["gold_end"]["num"] == 8


class TestStoppedLessNoKl:
    def test_it_is_the_difference_of_the_settings_table_in_its_family_and_alone(self):
        found = analyse(made_up(noise=0.2))

        one = found["stopped_less_no_kl"]
        assert one["setting"] == "k1-reward 0.05"
        assert one["family"] == len(found["to_none"]) == 16
        assert one["at_once"] == found["to_none"]["k1-reward 0.05"]["gold_stopped"]
        # Student's t on 7 degrees of freedom, sixteen at once; 2.365 alone.
        ratio = one["at_once"]["half"] / one["alone"]["half"]
        assert ratio == pytest.approx(stats.t.isf(0.025 / 16, 7) / 2.3646, rel=1e-3)


def test_kl_along_the_run_is_told_where_one_late_leap_hides_it_at_the_end():
    runs = made_up()
    late = (runs["arm"] == "no KL") & (runs["step"] >= 55)
    runs.loc[late, "kl_seq"] *= np.where(runs.loc[late, "seed"] % 2, 40.0, 0.05)

    one = analyse(runs)["to_none"]["k2-loss 0.15"]

    assert told(one["kl_end"], 1.0) == "untold"
    assert told(one["kl_run"], 1.0) == "below"
