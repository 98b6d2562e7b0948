"""Where gold is highest."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-law"))

from law_peak import highest_kl, peak_of_n, peak_place
from law_runs import Runs
from law_study_case import holds


def test_the_kl_of_the_peak_is_the_geometric_mean_of_where_each_run_is_highest():
    """A hump at step 10 that no noise can move: KL 2 and 8 there, so 4 in geometric mean."""
    gold = np.array([[0.0, 1.0, 3.0, 1.0]] * 8)
    kl = np.array([[0.0, 1.0, 2.0, 9.0], [0.0, 1.0, 8.0, 9.0]] * 4)

    told = peak_place(Runs(gold, gold, kl, (0, 5, 10, 15)))

    assert told["step"] == 10
    assert told["kl"]["mean"] == pytest.approx(4.0)
    half = (
        math.log(2) / math.sqrt(7) * 2.3646
    )  # t(7) by the error of eight logarithms, ln 4 -+ ln 2
    assert told["kl"]["low"] == pytest.approx(4.0 / math.exp(half), rel=1e-4)
    assert told["kl"]["high"] == pytest.approx(4.0 * math.exp(half), rel=1e-4)


def test_the_highest_evaluation_is_each_runs_own_and_never_the_start():
    gold = np.array([[9.0, 1.0, 3.0], [9.0, 3.0, 1.0]])
    kl = np.array([[0.0, 1.0, 2.0], [0.0, 5.0, 7.0]])

    assert highest_kl(Runs(gold, gold, kl, (0, 5, 10))).tolist() == [2.0, 5.0]


def test_the_interval_covers_where_a_bootstrap_of_the_mean_curve_does_not():
    """Eight draws of a top that is flat from 1 to 16 nats, its highest at 1; both intervals against their own truth, which many draws give."""
    rng = np.random.default_rng(0)
    hump = np.array([0.0, 0.2, 0.5, 0.47, 0.48, 0.47, 0.48])

    def runs(num):
        gold = hump + rng.normal(0, 0.3, (num, 7)) * (hump != 0)
        kl = np.tile([0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0], (num, 1))
        kl = kl * np.exp(rng.normal(0, 0.3, (num, 1)))
        return Runs(gold, gold, kl, tuple(range(7)))

    own_truth = float(np.exp(np.log(highest_kl(runs(20_000))).mean()))
    by_t, by_bootstrap = [], []
    for _ in range(300):
        own = runs(8)
        by_t.append(holds(peak_place(own)["kl"], own_truth))
        seen = rng.integers(8, size=(200, 8))
        place = 1 + own.gold_SC[seen][:, :, 1:].mean(axis=1).argmax(axis=1)
        logs = [np.log(own.kl_SC[s, c]).mean() for s, c in zip(seen, place, strict=True)]
        low, high = np.quantile(logs, [0.025, 0.975])
        by_bootstrap.append(low <= 0.0 <= high)

    assert np.mean(by_t) > 0.9
    assert np.mean(by_bootstrap) < 0.75


def test_each_draw_of_best_of_n_is_read_at_the_n_that_is_best_for_the_others():
    """By hand: draw 0 alone is best at n = 4, but any two of the three are best at n = 2."""
    gold = np.array([[0.0, 1.0, 2.0], [0.0, 3.0, 0.0], [0.0, 3.0, 1.0]])
    kl = np.tile([0.0, math.log(2) - 0.5, math.log(4) - 0.75], (3, 1))

    told = peak_of_n(Runs(gold, gold, kl, (1, 2, 4)))

    assert (told["n"], told["kl"]) == (2, pytest.approx(math.log(2) - 0.5))
    assert told["gain"]["mean"] == pytest.approx((1 + 3 + 3) / 3)
