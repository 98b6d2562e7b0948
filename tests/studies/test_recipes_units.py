"""The study of recipes: the proxy in other units, on made-up runs; and the built-in task wrapped."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from studies_case import STUDIES

from kltune.api.sweep import override_words
from kltune.launch.assemble import find_inputs, load_ground
from kltune.spec.load import load_spec
from kltune.tasks.kitchen import task as kitchen
from kltune.tasks.kitchen.gold import KitchenGold
from kltune.tasks.protocol import Sample
from tests.recipes_case import machine, made

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-recipes"))

from recipes_scaled_task import PROMPTS, scaled_task, write_prompts
from recipes_units import GRPO, TYPED, compared, units

FOLDER = STUDIES / "2026-11-30-recipes"
BETAS = machine(
    arms={TYPED: 0.15, GRPO: 0.04 * 0.8},
    units_0_25={TYPED: 0.15, "k1-reward 0.0375": 0.0375, GRPO: 0.04 * 0.2},
    units_1={TYPED: 0.15},
    units_4={TYPED: 0.15, "k1-reward 0.6": 0.6, GRPO: 0.04 * 3.2},
)


def scaled() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Typed: KL is proportional to the scale, gold falls by .4 at 4; relative and converted: the same runs."""
    same = (1.0, 2.0)
    parts = [
        made({TYPED: same, GRPO: (0.5, 6.0)}, block="arms"),
        made({TYPED: (1.0, 0.5), "k1-reward 0.0375": same, GRPO: (0.5, 6.0)}, block="units-0.25"),
        made({TYPED: same}, block="units-1"),
        made({TYPED: (0.6, 8.0), "k1-reward 0.6": same, GRPO: (0.5, 6.0)}, block="units-4"),
    ]
    runs, steps = (pd.concat(tables, ignore_index=True) for tables in zip(*parts, strict=True))
    return quiet(runs), steps


def quiet(runs: pd.DataFrame) -> pd.DataFrame:
    """Noise that runs of one seed share, so that what is told to be the same is."""
    rng = np.random.default_rng(3)
    by_seed = {seed: rng.normal(0, 0.05) for seed in runs["seed"].unique()}
    ends = {(TYPED, "units-4"): 0.6, (GRPO, "arms"): 0.5, (GRPO, "units-0.25"): 0.5}
    ends[GRPO, "units-4"] = 0.5
    gold = [
        share * ends.get((arm, block), 1.0) + by_seed[seed]
        for arm, block, seed, share in zip(
            runs["arm"], runs["block"], runs["seed"], runs["step"] / 60, strict=True
        )
    ]
    return runs.assign(gold=gold)


def test_a_typed_coefficient_is_told_by_what_the_scale_does_to_it() -> None:
    found = units(*scaled(), BETAS)
    assert found["comparisons"] == 24
    assert found["sigma"] == {
        "units-0.25": pytest.approx(0.2),
        "units-1": pytest.approx(0.8),
        "units-4": pytest.approx(3.2),
    }
    low = found["beside_scale_1"]["k1-reward 0.15 at 0.25"]
    high = found["beside_scale_1"]["k1-reward 0.15 at 4"]
    assert low["kl_along_times"]["mean"] == pytest.approx(0.25)
    assert high["kl_along_times"]["mean"] == pytest.approx(4.0)
    assert high["kl_end_times"]["mean"] == pytest.approx(4.0, rel=0.01)
    assert high["gold_end_minus"]["mean"] == pytest.approx(-0.4 * (1 + 55 / 60) / 2)
    assert high["gold_stopped_minus"]["mean"] == pytest.approx(-0.4)  # all stop at the last one
    arms = found["arms"]
    assert arms["k1-reward 0.15 at 4"]["beta_in_sigma"] == pytest.approx(0.15 / 3.2)
    for name in ("k1-reward 0.0375 at 0.25", "k1-reward 0.6 at 4"):
        assert arms[name]["beta_in_sigma"] == pytest.approx(0.15 / 0.8)
        assert found["beside_scale_1"][name]["gold_end_minus"]["mean"] == 0


def test_runs_that_repeat_are_counted_and_how_far_the_others_are() -> None:
    runs, steps = scaled()
    found = units(runs, steps, BETAS)["repeats"]
    assert len(found) == 7
    assert {(one["same"], one["runs"], one["parted"]) for one in found.values()} == {(8, 8, 0)}
    # One seed of one arm leaves its path at step 21 and ends .5 higher.
    mine = (steps["block"] == "units-4") & (steps["arm"] == "k1-reward 0.6") & (steps["seed"] == 3)
    steps.loc[mine & (steps["step"] >= 21), "kl_seq"] *= 1.02
    last = (runs["block"] == "units-4") & (runs["arm"] == "k1-reward 0.6") & (runs["seed"] == 3)
    runs.loc[last & (runs["step"] >= 55), "gold"] += 0.5
    one = units(runs, steps, BETAS)["repeats"]["k1-reward 0.6 at 4 and k1-reward 0.15 at 1"]
    assert (one["same"], one["parted"], one["first_step_apart"]["earliest"]) == (7, 1, 21)
    assert one["first_step_apart"]["median"] == 61  # beyond the last: most never part
    assert one["gold_end_apart"]["largest"] == pytest.approx(0.5)
    assert one["gold_end_apart"]["mean"] == pytest.approx(0.5 / 8)


def test_a_rounding_that_parts_nothing_is_not_the_same_in_every_digit() -> None:
    runs, steps = scaled()
    mine = (steps["block"] == "units-1") & (steps["seed"] == 0)
    steps.loc[mine, "kl_seq"] *= 1.0001
    one = units(runs, steps, BETAS)["repeats"][
        "k1-reward 0.15 at 1 and k1-reward 0.15 at 1 (as it ships)"
    ]
    assert (one["same"], one["parted"]) == (7, 0)


def test_the_prompts_are_those_of_the_built_in_task(tmp_path: Path) -> None:
    write_prompts(tmp_path / "made.jsonl")
    kept = (FOLDER / PROMPTS).read_text(encoding="utf-8")
    assert kept == (tmp_path / "made.jsonl").read_text(encoding="utf-8")
    splits = kitchen.splits()
    assert len(kept.splitlines()) == len((*splits.train, *splits.select, *splits.test))
    assert json.loads(kept.splitlines()[0])["food"] == splits.train[0].columns["food"]


@pytest.mark.parametrize("scale", [0.25, 4.0])
def test_the_wrapped_task_is_the_built_in_one_times_the_scale(scale: float) -> None:
    built_in = load_spec(FOLDER / "spec.yaml")
    wrapped = load_spec(FOLDER / "spec.yaml", override_words({"task": scaled_task(scale)}))
    grounds = [load_ground(one.spec, find_inputs(one), None) for one in (built_in, wrapped)]
    mine, own = (ground.data for ground in grounds)
    assert (mine.train, mine.select) == (own.train, own.select)  # ids of the tokens too
    loaded = grounds[0].loaded
    texts = [
        "Boil them for 8 minutes. Salt the water.",
        "Boil them for 8 minutes.",
        "I am certain. 90 minutes.",
    ]
    end = loaded.tokenizer.eos_token_id
    samples = []
    for i, text in enumerate(texts):
        ids = tuple(loaded.tokenizer.encode(text, add_special_tokens=False))
        is_ended = i != 1  # cut at the length limit, though it reads as whole
        samples.append(
            Sample(own.train.prompts[i], text, (*ids, end) if is_ended else ids, is_ended)
        )
    assert list(own.proxy(samples)) == [scale * score for score in mine.proxy(samples)]
    assert list(own.gold(samples)) == KitchenGold()(samples)


def test_every_arm_is_compared_with_scale_1() -> None:
    there = {(block, arm) for block, facts in BETAS["blocks"].items() for arm in facts["arms"]}
    at_1, as_it_ships = ("units-1", TYPED), ("arms", GRPO)
    assert compared(there) == {
        ("units-0.25", TYPED): at_1,
        ("units-0.25", "k1-reward 0.0375"): at_1,
        ("units-0.25", GRPO): as_it_ships,
        ("units-4", TYPED): at_1,
        ("units-4", "k1-reward 0.6"): at_1,
        ("units-4", GRPO): as_it_ships,
    }
    assert GRPO not in {arm for _, arm in compared(there - {as_it_ships})}
