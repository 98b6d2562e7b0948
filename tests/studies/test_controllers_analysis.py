"""The controllers study: its analysis, on made-up runs whose truth is known."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from controllers_case import STEPS, made_up
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-controllers"))

from controllers_analysis import INERT, analyse, passing_step, predicted_factor
from controllers_arms import CURES, GAINS, HALF
from controllers_data import Data
from experiment_intervals import at_once, told


def test_what_a_gain_can_move_at_most():
    assert predicted_factor(1.0, 3) == pytest.approx(1.44)
    assert predicted_factor(GAINS[0], STEPS) < INERT
    assert predicted_factor(GAINS[1], STEPS) > INERT


@pytest.mark.parametrize(("gain", "step"), [(1.0, 12), (0.1, 115)])
def test_the_way_down_is_foretold_at_the_step_where_beta_gets_there(gain, step):
    beta = 2 * (1 - 0.2 * gain) ** np.arange(200.0)  # at the start of step 1, 2, ...

    assert passing_step(2.0, 0.2, gain) == step == np.flatnonzero(beta <= 0.2)[0] + 1


@pytest.fixture(scope="module")
def found():
    return analyse(*made_up(more_gold={"gain 1": 0.3, "gain 3": -0.3}))


class TestAnalysis:
    def test_a_small_gain_is_inert_as_foretold_and_a_large_one_is_not(self, found):
        inert = {name: one["inert"] for name, one in found["settings"].items()}

        assert inert["gain 0.0064"] == {"predicted": True, "measured": True}
        assert inert["gain 0.3"] == {"predicted": False, "measured": False}
        assert found["settings"]["gain 0.0064"]["moved_most"] <= 1.0784

    def test_a_gain_holds_kl_at_its_target_and_a_small_one_does_not(self, found):
        settings = found["settings"]

        assert settings["gain 0.3"]["late_kl_over_target"]["mean"] == pytest.approx(1, abs=0.1)
        assert settings["gain 0.0064"]["late_kl_over_target"]["mean"] > 1.5
        assert settings["gain 0.3, target 0.3"]["target"] == 0.3

    def test_where_kl_answers_late_a_high_gain_swings_and_a_low_one_does_not(self):
        found = analyse(*made_up(delay=4))["swings_less_noise"]

        assert found["gain 3"]["told"] == "above"
        assert found["gain 0.1"]["told"] == "untold"

    def test_a_fixed_beta_does_not_swing_about_its_own_kl(self, found):
        assert found["noise"]["fixed 0.2"]["mean"] < 0.1

    def test_the_same_gain_carries_over_to_half_the_sequences_and_the_same_horizon_does_not(
        self, found
    ):
        same_gain, same_horizon = HALF

        assert found["transfer"]["gap, same horizon over same gain"]["low"] > 1
        assert told(found["transfer"][same_gain]["log_lowest"], 1.0) == "untold"
        assert told(found["transfer"][same_horizon]["log_lowest"], 1.0) == "above"

    def test_from_a_beta_too_high_the_way_down_is_as_long_as_the_gain_foretells(self, found):
        high = found["from_high"]

        fast, slow = high["gain 1 from beta 2"], high["gain 0.1 from beta 2"]
        assert fast["foretold"] == fast["passed"]["mean"] == 12
        assert fast["reached"] == 8
        assert 12 <= fast["reach"]["mean"] <= 24
        assert slow["reached"] == 0
        assert slow["passed"]["num"] == 0
        assert slow["foretold"] > STEPS

    def test_the_runs_that_swung_are_those_whose_kl_crossed_the_band(self):
        runs, steps = made_up(delay=4)
        mine = (steps["arm"] == "gain 0.3") & (steps["seed"] == 100)
        steps.loc[mine, "kl_token"] = np.r_[np.full(20, 0.11), np.full(40, 0.09)]  # within the band

        found = analyse(runs, steps)

        own = [run for gain in GAINS for run in Data.of(runs, steps).runs[f"gain {gain:g}"]]
        after = [run.relative_T[(run.reach or 61) - 1 :] for run in own]
        # Places above the band, then below it, by brute force.
        crossings = [np.flatnonzero(np.diff(_sides(one))) for one in after]
        assert found["swung"] == {
            "runs": 40,
            "once or more": sum(len(one) > 0 for one in crossings),
            "twice or more": sum(len(one) > 1 for one in crossings),
        }
        assert 0 < found["swung"]["twice or more"] < found["swung"]["once or more"] < 40

    def test_a_fixed_beta_that_comes_to_its_late_kl_too_late_has_no_count_of_swings(self):
        runs, steps = made_up()
        mine = (steps["arm"] == "fixed 0.2") & (steps["seed"] == 100)
        steps.loc[mine, "kl_token"] = np.geomspace(1e-4, 0.1, STEPS)  # at its late mean at step 51

        found = analyse(runs, steps)

        assert found["noise"]["fixed 0.2"]["num"] == 7
        assert found["swings_less_noise"]["gain 1"]["num"] == 7

    def test_the_second_family_leaves_the_first_alone(self, found):
        runs, steps = made_up(more_gold={"gain 1": 0.3, "gain 3": -0.3})

        alone = analyse(*(one[~one["arm"].isin(list(CURES))] for one in (runs, steps)))

        assert alone.pop("runs") == 136
        assert alone.pop("cures") == {"settings": {}}
        assert _same(alone, {key: found[key] for key in alone})

    def test_all_comparisons_of_the_first_family_with_a_fixed_beta_hold_at_once(self, found):
        runs, _ = made_up(more_gold={"gain 1": 0.3, "gain 3": -0.3})
        late = runs[runs["step"] >= 55].groupby(["arm", "seed"])["gold"].mean().unstack()

        whole = at_once((late.loc["gain 1"] - late.loc["fixed 0.02"]).to_numpy(), 16)

        assert found["to_fixed"]["fixed 0.02"]["gain 1"]["gold_end"] == pytest.approx(whole)

    def test_gold_is_compared_with_each_fixed_beta(self, found):
        to_fixed = found["to_fixed"]["fixed 0.02"]

        assert told(to_fixed["gain 1"]["gold_end"]) == "above"
        assert told(to_fixed["gain 3"]["gold_end"]) == "below"
        assert told(to_fixed["gain 0.3"]["gold_end"]) == "untold"
        assert len(to_fixed) == 16

    def test_late_kl_is_compared_with_that_of_a_fixed_beta(self, found):
        to_fixed = found["to_fixed"]["fixed 0.02"]

        assert told(to_fixed["gain 0.3"]["late_kl"], 1.0) == "below"
        assert to_fixed["gain 0.0064"]["late_kl"]["mean"] == pytest.approx(1, abs=0.06)

    def test_stages_are_judged_each_by_its_own_target(self, found):
        assert list(found["stages"]) == ["0.3", "0.099", "0.03"]
        over = [one["kl_over_target"]["mean"] for one in found["stages"].values()]
        assert over[0] < over[1] < over[2]  # each falls, and KL comes after


def _sides(values: np.ndarray) -> np.ndarray:
    """1 above the band, -1 below it, the last of both within it, from the first step that is outside."""
    sides = [1 if v > 1.25 else -1 if v < 0.8 else 0 for v in values]
    held = [next((s for s in reversed(sides[: i + 1]) if s), 0) for i in range(len(sides))]
    return np.array([s for s in held if s])


def _same(one: object, other: object) -> bool:
    """Equal, where nan is nan."""
    return repr(one) == repr(other)
