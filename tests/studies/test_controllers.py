"""The controllers study: its measures on series whose truth is known, and the study scaled down."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
from studies_case import load_script, run_small

study = load_script("2026-11-30-controllers")

STEPS = 60


def run_of(kl, beta=None, target=0.1) -> object:
    kl = np.asarray(kl, dtype=float)
    beta = np.full(len(kl), 0.02) if beta is None else np.asarray(beta, dtype=float)
    return study.Run(kl, beta, np.full(len(kl), target))


def wave(period: float, size: float = 0.5, noise: float = 0.1, seed: int = 0, num: int = 120):
    """KL over target that swings by a factor e^size about 1."""
    rng = np.random.default_rng(seed)
    return np.exp(size * np.sin(2 * np.pi * np.arange(num) / period) + rng.normal(0, noise, num))


class TestSwings:
    @pytest.mark.parametrize("period", [8, 12, 20, 30])
    def test_a_known_period_is_found(self, period):
        rate, found = study.swings_of(wave(period))

        assert found == pytest.approx(period, rel=0.06)
        assert rate == pytest.approx(20 / period, rel=0.15)

    def test_noise_that_crosses_the_target_at_every_other_step_makes_none(self):
        values = wave(12, size=0.0, noise=0.06)

        assert (np.diff(np.sign(values - 1)) != 0).sum() > 40
        assert study.swings_of(values)[0] == 0

    def test_a_kl_that_comes_up_to_its_target_and_stays_makes_none(self):
        assert study.swing_steps(np.array([0.1, 0.5, 0.9, 1.1, 1.2, 0.9])) == []

    def test_one_crossing_of_the_band_is_one_swing_and_has_no_period(self):
        rate, period = study.swings_of(np.r_[np.full(10, 2.0), np.full(10, 0.5)])

        assert (rate, math.isnan(period)) == (0.5, True)

    def test_too_few_steps_say_nothing(self):
        assert math.isnan(study.swings_of(np.ones(9))[0])


class TestMeasure:
    def test_the_target_is_reached_when_the_mean_of_three_steps_is_there(self):
        found = study.measure(run_of([0.0, 0.0, 0.31, 0.0, 0.09, 0.09, 0.15, *[0.1] * 20]))

        assert found["reach"] == 3  # (0 + 0 + .31) / 3
        assert study.measure(run_of([0.095] * 20))["reach_by_end"] == 20
        assert math.isnan(study.measure(run_of([0.095] * 20))["reach"])

    def test_a_beta_wound_down_before_the_target_is_reached_is_seen(self):
        found = study.measure(run_of(np.linspace(0.01, 0.2, 20), np.geomspace(1, 1e-4, 20)))

        assert math.exp(found["log_at_target"]) == pytest.approx(
            10 ** (-4 * (found["reach"] - 1) / 19)
        )

    def test_the_way_back_of_kl_and_of_beta_is_timed(self):
        kl = [*np.linspace(0.01, 0.1, 10), *[0.4] * 10, *[0.05] * 10]
        beta = [*np.geomspace(1, 0.1, 12), *np.geomspace(0.12, 2, 18)]

        found = study.measure(run_of(kl, beta))

        assert found["reach"] == 11  # (.09 + .1 + .4) / 3
        assert found["back"] == 23  # (.05 + .05 + .05) / 3; the step before is at .167
        assert found["start_again"] == 1 + next(i for i, b in enumerate(beta) if i > 10 and b >= 1)

    def test_overshoot_is_the_highest_smoothed_kl_after_the_target_was_reached(self):
        found = study.measure(run_of([*np.linspace(0, 0.1, 11), 0.3, 0.3, 0.3, *[0.1] * 20]))

        assert math.exp(found["log_overshoot"]) == pytest.approx(3.0)

    def test_error_is_that_of_the_last_third_alone(self):
        rng = np.random.default_rng(0)
        late = 0.1 * np.exp(0.2 + 0.3 * rng.normal(size=2000))

        found = study.measure(run_of([*[9.0] * 4000, *late]))

        assert found["log_error"] == pytest.approx(0.2, abs=0.03)
        assert found["error_sd"] == pytest.approx(0.3, abs=0.02)
        assert found["error_rms"] == pytest.approx(math.hypot(0.2, 0.3), abs=0.02)

    def test_a_beta_that_falls_and_comes_back_has_moved(self):
        found = study.measure(
            run_of([0.1] * 21, [*np.geomspace(1, 0.5, 11), *np.geomspace(0.5, 1, 10)])
        )

        assert found["log_end"] == pytest.approx(0)
        assert math.exp(found["log_moved"]) == pytest.approx(2)


def test_the_staged_target_is_that_in_force_at_each_step():
    (name,) = study.STAGED

    target = study.target_at(name, np.arange(1.0, 61), STEPS)

    assert target[:20] == pytest.approx(0.3)
    assert target[20:41] == pytest.approx(0.099)  # step 21 is the first at a share of .33
    assert target[41:] == pytest.approx(0.03)


def test_what_a_gain_can_move_at_most():
    assert study.predicted_factor(1.0, 3) == pytest.approx(1.44)
    assert study.predicted_factor(study.GAINS[0], STEPS) < study.INERT
    assert study.predicted_factor(study.GAINS[1], STEPS) > study.INERT
    same_gain, same_horizon = study.HALF
    assert study.gain_of(same_gain) == pytest.approx(0.3)
    assert study.gain_of(same_horizon) == pytest.approx(0.15)


# ---------------------------------------------------------------- whole studies, made up


def steer(name: str, rng: np.random.Generator, delay: int) -> tuple[np.ndarray, np.ndarray]:
    """KL grows by .02 a step and falls by a share of 4 beta (20 % where it is at .1), ``delay`` steps late; beta by the real rule."""
    setting, gain = study.SETTINGS[name], study.gain_of(name)
    target = study.target_at(name, np.arange(1.0, STEPS + 1), STEPS)
    kl, beta, value = np.zeros(STEPS), np.zeros(STEPS), float(setting["beta"])
    level = 0.0
    for t in range(STEPS):
        beta[t] = value
        kl[t] = level * math.exp(rng.normal(0, 0.05)) + 1e-4
        if not math.isnan(gain):
            value *= 1 + max(-0.2, min(0.2, kl[t] / target[t] - 1)) * gain
        level = max(level + 0.02 - min(4 * beta[max(t - delay, 0)], 0.9) * level, 0.0)
    return kl, beta


def made_up(delay: int = 0, more_gold: dict[str, float] | None = None):
    rng = np.random.default_rng(3)
    steps, runs = [], []
    for block, one in study.blocks(False, None).items():
        for name in one.arms:
            for seed in study.SEEDS:
                kl, beta = steer(name, rng, delay)
                whose = {"block": block, "arm": name, "seed": seed}
                steps += [
                    {
                        **whose,
                        "step": t + 1,
                        "kl_seq": 13 * kl[t],
                        "kl_token": kl[t],
                        "beta": beta[t],
                    }
                    for t in range(STEPS)
                ]
                gold = 0.5 + (more_gold or {}).get(name, 0.0) + rng.normal(0, 0.02, 13)
                runs += [{**whose, "step": 5 * c, "gold": gold[c]} for c in range(13)]
    return pd.DataFrame(runs), pd.DataFrame(steps)


@pytest.fixture(scope="module")
def found():
    return study.analyse(*made_up(more_gold={"gain 1": 0.3, "gain 3": -0.3}))


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
        found = study.analyse(*made_up(delay=4))["swings_less_noise"]

        assert found["gain 3"]["told"] == "above"
        assert found["gain 0.1"]["told"] == "untold"

    def test_a_fixed_beta_does_not_swing_about_its_own_kl(self, found):
        assert found["noise"]["fixed 0.2"]["mean"] < 0.1

    def test_the_same_gain_carries_over_to_half_the_sequences_and_the_same_horizon_does_not(
        self, found
    ):
        same_gain, same_horizon = study.HALF

        assert found["transfer"]["gap, same horizon over same gain"]["low"] > 1
        assert study.told(found["transfer"][same_gain]["log_lowest"], 1.0) == "untold"
        assert study.told(found["transfer"][same_horizon]["log_lowest"], 1.0) == "above"

    def test_from_a_beta_too_high_the_way_down_is_as_long_as_the_gain_foretells(self, found):
        high = found["from_high"]

        fast, slow = high["gain 1 from beta 2"], high["gain 0.1 from beta 2"]
        assert fast["reached"] == 8
        assert fast["reach"]["mean"] == pytest.approx(fast["foretold"]["mean"], abs=8)
        assert slow["reached"] == 0
        assert slow["foretold"]["mean"] > STEPS

    def test_gold_is_compared_with_each_fixed_beta(self, found):
        to_fixed = found["to_fixed"]["fixed 0.02"]

        assert study.told(to_fixed["gain 1"]["gold_end"]) == "above"
        assert study.told(to_fixed["gain 3"]["gold_end"]) == "below"
        assert study.told(to_fixed["gain 0.3"]["gold_end"]) == "untold"
        assert len(to_fixed) == 16

    def test_late_kl_is_compared_with_that_of_a_fixed_beta(self, found):
        to_fixed = found["to_fixed"]["fixed 0.02"]

        assert study.told(to_fixed["gain 0.3"]["late_kl"], 1.0) == "below"
        assert to_fixed["gain 0.0064"]["late_kl"]["mean"] == pytest.approx(1, abs=0.06)

    def test_stages_are_judged_each_by_its_own_target(self, found):
        assert list(found["stages"]) == ["0.3", "0.099", "0.03"]
        over = [one["kl_over_target"]["mean"] for one in found["stages"].values()]
        assert over[0] < over[1] < over[2]  # each falls, and KL comes after

    def test_tables_and_figures_are_made_of_what_was_found(self, found, tmp_path):
        results = json.loads(json.dumps(sys_rounded(found), allow_nan=False))

        written = study.tables(results)
        study.draw(*made_up(), found, tmp_path)

        assert written["beta"].count("\n") == 1 + 17
        assert "nan" not in "".join(written.values())
        assert {p.name for p in tmp_path.iterdir()} == {"gains.png", "tracking.png", "others.png"}


def sys_rounded(found: dict) -> dict:
    import experiment

    return experiment._rounded(found)


@pytest.fixture(scope="module")
def scaled_down(tmp_path_factory):
    return run_small("2026-11-30-controllers", tmp_path_factory.mktemp("controllers"))


@pytest.mark.slow
def test_the_usual_horizon_moves_nothing_and_a_gain_of_1_winds_beta_down_on_the_way(scaled_down):
    usual, high = (scaled_down["settings"][name] for name in ("gain 0.0064", "gain 1"))

    assert usual["inert"] == {"predicted": True, "measured": True}
    assert high["inert"] == {"predicted": False, "measured": False}
    assert usual["beta_at_target"]["mean"] == pytest.approx(0.02, rel=0.06)
    assert high["beta_at_target"]["mean"] < usual["beta_at_target"]["mean"] / 3
    assert high["moved_factor"]["mean"] > 10
