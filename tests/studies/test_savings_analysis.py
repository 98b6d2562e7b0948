"""What the page on a sweep's savings says, on a made table; its figure and tables."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-savings"))

import savings_analysis as analysis
import savings_figures as figures
import savings_tables as tables
import savings_walls as walls

PNG = b"\x89PNG"
SWEEPS = [
    {
        "seed": seed,
        "origin": "baseline:instructgpt" if seed == 210 else "sobol",
        "setting": {"beta": 0.1, "penalty": "k1-reward", "controller": "fixed"},
        "stop_first_step": 20,
        "stop_last_step": 20,
        "stop_kl_seq": 1.5,
        "value": 1.4,
        "value_low": low,
        "value_high": 1.6,
        "wall_s": 100.0,
        "trials": 5,
        "trial_steps": 40,
        "steps": 150,
        "spared": {"done": 0, "pruned": 20, "kl_limit": 30},
    }
    for seed, low in ((210, 0.9), (211, 1.2))
]
ALONE = [{"seed": 210, "wall_s": 300.0, "steps": 200}]


def made() -> pd.DataFrame:
    """Gold .2 before training, 1 at step 20, and at the end .5, or -1 without KL."""
    rng = np.random.default_rng(0)
    arms = ["no KL", "sweep 210", "sweep 211", "random 0", "random 1", *analysis.RECIPES]
    rows = [
        {
            "block": "fresh",
            "arm": arm,
            "seed": seed,
            "step": step,
            "gold": gold + rng.normal(0, 0.02),
            "kl_seq": step / 10,
        }
        for arm in arms
        for seed in range(4)
        for step, gold in ((0, 0.2), (20, 1.0), (40, -1.0 if arm == "no KL" else 0.5))
    ]
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return analysis.analyse(made(), pd.DataFrame(), SWEEPS, ALONE)


def test_ways_and_what_a_sweep_is_ahead_by(found: dict[str, Any]) -> None:
    ways = found["ways"]
    assert ways[analysis.SWEEP]["mean"] == pytest.approx(1.0, abs=0.03)
    assert ways[analysis.SWEEP_BY_KL]["mean"] == pytest.approx(1.0, abs=0.03)  # KL 1.5: step 20
    assert ways[analysis.SWEEP_END]["mean"] == pytest.approx(0.5, abs=0.03)
    ahead = found["sweep_minus"]
    assert ahead[analysis.NONE_END]["mean"] == pytest.approx(2.0, abs=0.05)
    assert ahead[analysis.NONE_END]["low"] > 1.5
    assert abs(ahead[analysis.RANDOM_STOPPED]["mean"]) < 0.05
    assert found["stopping"][analysis.RANDOM_STOPPED]["mean"] == pytest.approx(0.5, abs=0.05)
    assert found["start"] == pytest.approx(0.2, abs=0.02)
    assert found["best_of_random"]["2"]["steps"] == 2 * 40


def test_what_the_sweeps_said_is_held_against_fresh_seeds(found: dict[str, Any]) -> None:
    assert found["said"]["minus_fresh"]["mean"] == pytest.approx(0.4, abs=0.03)
    assert found["said"]["intervals_that_cover"] == 1  # of .9 to 1.6 and 1.2 to 1.6
    assert found["recipes_recommended"] == 1


def test_what_was_spared_adds_up(found: dict[str, Any]) -> None:
    cost = found["cost"]
    assert cost["share_spared"] == {"done": 0.0, "pruned": 0.1, "kl_limit": 0.15}
    assert cost["share_spared_by_guards"] == 0.15
    assert cost["share_run"]["mean"] == pytest.approx(0.75)


def test_packing_is_told_in_seconds_per_step() -> None:
    paces = walls.paces(SWEEPS, ALONE)
    assert paces["same_seed_times_as_fast"] == [pytest.approx((300 / 200) / (100 / 150))]
    assert paces["median_times_as_fast"] == pytest.approx((300 / 200) / (100 / 150))
    assert paces["seeds"] == [210]


def test_tables_and_figure_hold_what_was_found(found: dict[str, Any], tmp_path: Path) -> None:
    written = tables.tables(found)
    assert written["ways"].count("\n") == 2 + len(found["ways"]) - 1
    assert "1.40 (0.90 to 1.60)" in written["sweeps"]
    assert written["random"].splitlines()[-1].startswith("| a sweep | 150 |")
    assert set(analysis.RECIPES) < {
        line.split(" | ")[0][2:] for line in written["known"].split("\n")
    }
    figures.draw(pd.DataFrame(), pd.DataFrame(), found, tmp_path)
    assert (tmp_path / "savings.png").read_bytes().startswith(PNG)
