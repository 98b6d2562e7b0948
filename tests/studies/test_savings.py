"""The study of what a sweep saves: the settings that it draws, and its direction on a scaled-down run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from studies_case import load_script, run_small

NAME = "2026-11-30-savings"


def test_random_settings_are_of_the_space_and_repeat() -> None:
    study = load_script(NAME)
    first, more = study.random_settings(3), study.random_settings(6)
    assert {name: more[name] for name in first} == first
    assert all(1e-2 <= float(one["beta"]) <= 10 for one in more.values())


@pytest.mark.slow
def test_a_sweep_recommends_what_is_above_the_untrained_model(tmp_path: Path) -> None:
    found = run_small(NAME, tmp_path)
    assert found["sweeps"] == 1
    assert found["ways"]["sweep"]["mean"] > found["start"] + 0.1
    assert 0 < found["cost"]["share_run"]["mean"] <= 1
    assert found["walls"]["median_times_as_fast"] > 0
    table: Any = pd.read_csv(tmp_path / "runs.csv")
    assert set(table["arm"]) == {"no KL", "sweep 210", "random 0", "trl-grpo-0.18"}
