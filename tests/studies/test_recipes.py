"""The study of recipes: what a verdict is, and its direction on a scaled-down run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from studies_case import load_script, run_small

NAME = "2026-11-30-recipes"


def made(
    truth: dict[str, tuple[float, float]], seeds: int = 8
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Runs with gold that ends as told, times KL as told; noise is small and shared by the arms of a seed."""
    rng = np.random.default_rng(1)
    rows: list[dict[str, Any]] = []
    steps: list[dict[str, Any]] = []
    for s in range(seeds):
        shared = rng.normal(0, 0.05)
        for arm, (gold, kl) in truth.items():
            own = rng.normal(0, 0.03)
            for c, step in enumerate(range(0, 65, 5)):
                share = c / 12
                row = {"block": "arms", "arm": arm, "seed": s, "step": step}
                peak = 1.0 * min(1.0, 3 * share)
                value = peak + (gold - peak) * share**3 + shared + own
                rows.append(
                    {
                        **row,
                        "gold": value,
                        "proxy": share,
                        "kl_seq": kl * share + 1e-3,
                        "kl_token": 0.1,
                    }
                )
            steps += [
                {"block": "arms", "arm": arm, "seed": s, "step": step, "kl_seq": kl, "beta": 0.1}
                for step in range(1, 61)
            ]
    return pd.DataFrame(rows), pd.DataFrame(steps)


def test_a_verdict_is_what_was_put_in() -> None:
    study = load_script(NAME)
    truth = {
        "no KL": (0.0, 20.0),
        "k1-reward 0.15": (1.0, 2.0),
        "same": (0.98, 20.0),
        "held": (0.98, 5.0),
        "bad": (-1.0, 30.0),
    }
    found = study.analyse(*made(truth))
    verdicts = {arm: one.get("verdict") for arm, one in found["arms"].items()}
    assert verdicts == {
        "no KL": None,
        "k1-reward 0.15": "lower KL",
        "same": "not told",
        "held": "lower KL",
        "bad": "less gold",
    }
    assert found["first_rule"]["harms"]["arms"] == ["bad"]
    assert found["first_rule"]["holds"]["arms"] == ["k1-reward 0.15", "same", "held"]
    assert found["runs"] == 40
    assert found["arms"]["held"]["kl_times_none"]["mean"] == pytest.approx(0.25, abs=0.02)


def test_by_the_first_rule_no_difference_is_inert() -> None:
    study = load_script(NAME)
    same = study.TUNED
    found = study.analyse(*made({"no KL": (0.0, 20.0), same: (0.0, 20.0), "slow": (0.0, 5.0)}))
    rules = {arm: one.get("first_rule") for arm, one in found["arms"].items()}
    assert rules == {"no KL": None, same: "inert", "slow": "slows"}


def test_every_setting_has_its_published_words() -> None:
    study = load_script(NAME)
    arms = [arm for block in study.STUDY.blocks(False, Path()).values() for arm in block.arms]
    assert sorted(arms) == sorted(study.PUBLISHED)


@pytest.mark.slow
def test_a_price_holds_kl_and_a_target_in_the_wrong_unit_does_not(tmp_path: Path) -> None:
    found = run_small(NAME, tmp_path)["arms"]
    assert found["k1-reward 0.15"]["kl_times_none"]["mean"] < 0.7
    literal = found["target 7, read per token"]
    assert literal["beta_end"] < 0.5 * literal["beta_start"]
    assert literal["kl_end"]["mean"] > 1.5 * found["k1-reward 0.15"]["kl_end"]["mean"]
    assert json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["runs"] == 6
