"""The controllers study: a floor and a near start against runs without, on made-up runs whose truth is known."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from controllers_case import made_up
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-controllers"))

from controllers_analysis import analyse
from controllers_arms import CURES, FLOORED, NEAR, SETTINGS
from controllers_cures import cured, without_floor
from controllers_data import Data
from experiment_intervals import at_once

FLOOR_1, NEAR_1 = "gain 1, never below 0.02", "gain 1 from beta 0.2"


@pytest.fixture(scope="module")
def tables():
    return made_up(more_gold={FLOOR_1: 0.3, NEAR_1: -0.3})


@pytest.fixture(scope="module")
def found(tables):
    return analyse(*tables)["cures"]


def test_a_floor_is_compared_with_the_same_setting_without():
    for name in FLOORED:
        assert SETTINGS[without_floor(name)] == SETTINGS[name]
    assert [SETTINGS[name]["beta"] for name in NEAR] == [0.2, 0.2]


def test_a_floor_keeps_beta_up_where_kl_is_on_its_way(found):
    for name in FLOORED:
        assert found["settings"][name]["lowest_beta"]["mean"] == pytest.approx(0.02)


def test_a_run_that_comes_under_control_earlier_is_told_so_and_one_that_never_does_counts_as_late(
    tables,
):
    runs, steps = (one.copy() for one in tables)
    for name, seed, kl in steps[["arm", "seed"]].drop_duplicates().assign(kl=0.2).to_numpy():
        mine = (steps["arm"] == name) & (steps["seed"] == seed)
        late = {FLOOR_1: 20 + seed % 3, "gain 1": 40 if seed < 104 else 60}.get(name, 60)
        steps.loc[mine, "kl_token"] = np.where(steps.loc[mine, "step"] <= late, kl, 0.1)

    one = analyse(runs, steps)["cures"]

    # The mean of three is above the band for two steps more: (.2 + .1 + .1) / 3.
    first = 20 + np.array([seed % 3 for seed in range(100, 108)]) + 3
    less = at_once(first - np.repeat([43.0, 61.0], 4), 4)
    assert one["floor"][FLOOR_1]["control"] == pytest.approx({**less, "told": "below"})
    assert one["settings"][FLOOR_1]["under_control"] == 8
    assert one["floor"]["gain 0.3, never below 0.02"]["control"]["half"] == 0  # none of either
    assert one["settings"]["gain 0.3, never below 0.02"]["under_control"] == 0


def test_each_question_has_its_own_number_of_intervals_at_once(tables, found):
    measured = Data.of(*tables).measured()

    def less(name, other, key, count):
        return at_once(measured[name][key] - measured[other][key], count)

    floor, start = found["floor"][FLOOR_1], found["start"][NEAR_1]
    for key, own in (("late_rms", "error_rms"), ("control", "control_by_end")):
        expected = less(FLOOR_1, "gain 1", own, 4)
        assert {name: floor[key][name] for name in expected} == pytest.approx(expected)
    expected = less(NEAR_1, "fixed 0.2", "error_rms", 2)
    assert {name: start["late_rms"][name] for name in expected} == pytest.approx(expected)
    assert floor["less"] == "gain 1"
    assert start["less"] == "fixed 0.2"


def test_gold_is_compared_six_times(tables, found):
    runs, _ = tables
    late = runs[runs["step"] >= 55].groupby(["arm", "seed"])["gold"].mean().unstack()

    expected = at_once((late.loc[FLOOR_1] - late.loc["gain 1"]).to_numpy(), 6)

    one = found["gold"][FLOOR_1]["gain 1"]
    assert {name: one[name] for name in expected} == pytest.approx(expected)
    assert sum(len(others) for others in found["gold"].values()) == 6
    verdicts = {name: others["fixed 0.2"]["told"] for name, others in found["gold"].items()}
    assert verdicts == dict.fromkeys(CURES, "untold") | {FLOOR_1: "above", NEAR_1: "below"}


def test_a_controller_that_holds_its_target_is_nearer_than_a_fixed_beta_that_does_not(tables):
    runs, steps = (one.copy() for one in tables)
    rng = np.random.default_rng(5)
    mine = steps["arm"] == NEAR_1
    steps.loc[mine, "kl_token"] = 0.1 * np.exp(rng.normal(0, 0.05, mine.sum()))
    steps.loc[steps["arm"] == "fixed 0.2", "kl_token"] = 0.14  # rms of the logarithm: log 1.4

    one = analyse(runs, steps)["cures"]["start"][NEAR_1]["late_rms"]

    assert one["told"] == "below"
    assert one["mean"] == pytest.approx(0.05 - np.log(1.4), abs=0.01)


def test_where_a_setting_was_not_run_nothing_is_compared(tables):
    data = Data.of(*tables)
    part = data.only([name for name in data.runs if name != "gain 1"])

    assert cured(part, part.measured()) == {}
