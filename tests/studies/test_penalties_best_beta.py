"""The penalties study: the best beta of each penalty."""

from __future__ import annotations

import math
import sys

import numpy as np
from penalties_case import analyse, made_up
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-penalties"))

from penalties_best_beta import best_when_stopped


def test_beta_and_stop_are_chosen_on_other_seeds():
    rng = np.random.default_rng(0)

    draws = [best_when_stopped(rng.normal(size=(3, 8, 14))).mean() for _ in range(200)]

    assert abs(np.mean(draws)) < 0.2  # the best of 39 is at 2.1 each


def test_a_penalty_at_its_best_beta_has_a_gold():
    best = analyse(made_up())["best_beta"]

    assert math.isfinite(best["k2-loss"]["end"]["gold"]["mean"])
