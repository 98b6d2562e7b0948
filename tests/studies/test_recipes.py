"""The study of recipes: its settings, and its direction on a scaled-down run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from studies_case import STUDIES, load_script, run_small

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-recipes"))

from recipes_arms import PUBLISHED
from recipes_units import BLOCKS

NAME = "2026-11-30-recipes"


def test_every_setting_has_its_published_words() -> None:
    study = load_script(NAME).STUDY
    blocks = study.blocks(False, Path())
    arms = [arm for name in blocks if not name.startswith("units-") for arm in blocks[name].arms]
    assert sorted(arms) == sorted(PUBLISHED)


def test_the_units_vary_by_the_scale_alone() -> None:
    blocks = load_script(NAME).STUDY.blocks(False, Path())
    assert {name: sorted(blocks[name].arms) for name in BLOCKS.values()} == {
        "units-0.25": ["k1-reward 0.0375", "k1-reward 0.15", "trl-grpo-0.18"],
        "units-1": ["k1-reward 0.15"],
        "units-4": ["k1-reward 0.15", "k1-reward 0.6", "trl-grpo-0.18"],
    }
    for scale, name in BLOCKS.items():
        (part,) = blocks[name].set["task"]["proxy"]["weighted"]
        assert part["weight"] == scale
        assert list(blocks[name].seeds) == list(blocks["arms"].seeds)
        assert blocks[name].arms["k1-reward 0.15"] == blocks["arms"].arms["k1-reward 0.15"]


@pytest.mark.slow
def test_a_price_holds_kl_and_a_target_in_the_wrong_unit_does_not(tmp_path: Path) -> None:
    results = run_small(NAME, tmp_path)
    found = results["arms"]
    assert found["k1-reward 0.15"]["kl_times_none"]["mean"] < 0.7
    literal = found["target 7, read per token"]
    assert literal["beta_end"] < 0.5 * literal["beta_start"]
    assert literal["kl_end"]["mean"] > 1.5 * found["k1-reward 0.15"]["kl_end"]["mean"]
    assert json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["runs"] == 12
    # One beta beside a proxy of four times the size weighs a fourth.
    beside = results["units"]["beside_scale_1"]
    assert beside["k1-reward 0.15 at 4"]["kl_along_times"]["mean"] > 1.5
    repeats = results["units"]["repeats"]
    wrapped = repeats["k1-reward 0.15 at 1 and k1-reward 0.15 at 1 (as it ships)"]
    assert wrapped["same"] == wrapped["runs"] == 2
