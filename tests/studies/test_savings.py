"""The study of what a sweep saves: its arithmetic on made tables, and its direction on a scaled-down run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from studies_case import load_script, run_small

NAME = "2026-11-30-savings"


def test_a_difference_of_ways_is_found_with_its_interval() -> None:
    study = load_script(NAME)
    rng = np.random.default_rng(0)
    shared = rng.normal(0, 0.5, 4)
    a = 1.0 + shared + rng.normal(0, 0.05, (8, 4))
    b = 0.6 + shared + rng.normal(0, 0.05, (6, 4))
    one = study.crossed(a, b)
    assert one["mean"] == pytest.approx(0.4, abs=0.06)
    assert 0.2 < one["low"] < one["mean"] < one["high"] < 0.6  # what seeds share cancels
    alone = study.crossed(a)
    assert alone["high"] - alone["low"] > 0.3  # and doesn't for one mean


def test_a_stop_is_judged_by_runs_that_did_not_choose_it() -> None:
    study = load_script(NAME)
    rng = np.random.default_rng(3)
    noise = rng.normal(0, 1, (400, 9))
    assert abs(study.own_stop(noise).mean()) < 0.1
    assert noise[:, 1:].max(axis=1).mean() > 1.0  # what judging by itself would give
    picked = study.best_of([noise, rng.normal(0, 1, (400, 9)) + 3.0])
    assert picked.mean() == pytest.approx(3.0, abs=0.1)


def test_random_settings_are_of_the_space_and_repeat() -> None:
    study = load_script(NAME)
    first, more = study.random_settings(3), study.random_settings(6)
    assert {name: more[name] for name in first} == first
    assert all(1e-2 <= float(one["beta"]) <= 10 for one in more.values())


def test_what_was_spared_adds_up() -> None:
    study = load_script(NAME)
    sweeps = [{"spared": {"done": 0, "pruned": 100}}, {"spared": {"kl_limit": 60, "done": 0}}]
    assert study._spared(sweeps, [400, 400]) == {"done": 0.0, "pruned": 0.125, "kl_limit": 0.075}


@pytest.mark.slow
def test_a_sweep_recommends_what_is_above_the_untrained_model(tmp_path: Path) -> None:
    found = run_small(NAME, tmp_path)
    assert found["sweeps"] == 1
    assert found["ways"]["sweep"]["mean"] > found["start"] + 0.1
    assert 0 < found["steps_share"]["mean"] <= 1
    table: Any = pd.read_csv(tmp_path / "runs.csv")
    assert set(table["arm"]) == {"no KL", "sweep 200", "random 0", "trl-grpo-0.18"}
