"""Best-of-n by Gao's form, and RL of which it is known what it has more."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy import stats
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-law"))

from law_arms import LEVELS, SHIPPED, Proxy
from law_rl_less_bon import BANDS, best_of_n, rl_above_bon
from law_runs import Runs
from law_study_case import MIDDLE, A, analysed, holds, slope_b


@pytest.fixture(scope="module")
def found():
    return analysed()


def test_its_law_and_peak_are_those_that_were_put_in(found):
    own = found["levels"][MIDDLE]["best_of_n"]

    assert holds(own["law"]["a"], 0.5)
    assert holds(own["law"]["b"], 0.2)
    assert own["peak"]["kl"] == pytest.approx((0.5 / 0.4) ** 2, abs=0.5)


def test_what_rl_has_more_is_read_at_its_own_evaluations(found):
    """By hand: d (a - b ln d) less d (.5 - .2 d) at the KL of the evaluations at steps 10 to 20."""
    d = np.sqrt(9 * (np.array([10, 15, 20]) / 60) ** 2)
    truth = np.mean(d * (A - slope_b(Proxy()) * np.log(d)) - d * (0.5 - 0.2 * d))

    cell = found["levels"][MIDDLE]["best_of_n"]["rl_less_bon"]["0.25 to 1.5"]

    assert cell["mean"] == pytest.approx(truth, abs=0.08)
    assert found[SHIPPED]["best_of_n"]["rl_less_bon"]["0.25 to 1.5"]["low"] > 0


def test_the_differences_of_all_proxies_at_once_are_those_of_one_but_wider(found):
    own = found["levels"][MIDDLE]["best_of_n"]
    one, all_of_them = own["rl_less_bon"]["0.25 to 1.5"], own["of_all"]["0.25 to 1.5"]

    ratio = stats.t.isf(0.025 / (3 * (len(LEVELS) + 1)), 7) / stats.t.isf(0.025 / 3, 7)
    assert all_of_them["mean"] == one["mean"]
    assert (all_of_them["high"] - one["mean"]) / (one["high"] - one["mean"]) == pytest.approx(ratio)


def test_noise_of_best_of_n_widens_the_interval_as_that_of_rl_does():
    """Gold that is known, and the same scatter first in the one, then in the other: not a curve taken as exact."""
    kl = np.tile(np.linspace(0, 3, 7), (8, 1))
    shift = np.linspace(-0.2, 0.2, 8)[:, None] * (kl > 0)
    flat, spread = Runs(kl, kl, kl, tuple(range(7))), Runs(kl + shift, kl, kl, tuple(range(7)))

    cells = [
        best_of_n(*pair, 1)["rl_less_bon"]["0.25 to 1.5"]
        for pair in ((flat, spread), (spread, flat))
    ]
    assert cells[0]["sd"] == pytest.approx(cells[1]["sd"], rel=0.15)
    assert min(one["sd"] for one in cells) > 0.1


def test_levels_where_rl_is_told_above_best_of_n_are_named():
    def of(low, high):
        cell = {"mean": (low + high) / 2, "low": low, "high": high, "num": 8}
        return {"best_of_n": {"rl_less_bon": dict.fromkeys(BANDS, cell)}}

    few = {"best_of_n": {"rl_less_bon": {name: {"mean": None, "num": 2} for name in BANDS}}}
    told = rl_above_bon({"a": of(0.1, 0.3), "b": of(-0.1, 0.3), "c": of(-0.3, -0.1), "d": few})

    assert told["0.25 to 1.5"] == {"above": ["a"], "below": ["c"]}


def test_fewer_draws_of_best_of_n_than_runs_are_paired_with_the_first():
    kl = np.tile(np.linspace(0, 3, 7), (8, 1))
    bon = Runs(kl[:3], kl[:3], kl[:3], tuple(range(7)))

    cell = best_of_n(bon, Runs(2 * kl, kl, kl, tuple(range(7))), 1)["rl_less_bon"]["0.25 to 1.5"]

    assert (cell["num"], cell["mean"]) == (3, pytest.approx(1.0))  # at .5, 1 and 1.5 nats
