"""The study of short and small looks: its analysis on made-up runs whose truth is known, and the study scaled down."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from studies_case import load_script, run_small

study = load_script("2026-11-30-short-small")

STEPS = np.arange(0, 61, 5)
LATE = dict(zip(study.BETAS, (0.0, 0.4, 0.9, 0.7, 0.3), strict=True))
"""Gold over the start at the last step: the best is .15."""
EARLY = dict(zip(study.BETAS, (0.7, 0.6, 0.5, 0.4, 0.2), strict=True))
"""After a quarter of the steps: the less it costs, the faster it rises, so an early look is misled."""
SPEED = {"small": 60.0, "medium": 120.0, "full": 120.0, "large": 240.0}


def made_up(seed=0, noise=0.03, flip_small=False, alike=False) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    rows = []
    for model in study.MODELS:
        for i, beta in enumerate(study.BETAS):
            late = (
                LATE[study.BETAS[(i + 1) % len(study.BETAS)]]
                if flip_small and model == "small"
                else LATE[beta]
            )
            early = EARLY[beta]
            if alike:
                late = early = 0.5
            curve = np.interp(STEPS, (0, 15, 60), (0.0, early, late))
            for s in study.SEEDS:
                gold = 0.2 + curve + rng.normal(0, noise, len(STEPS))
                kl = STEPS / 60 * 8 / (1 + 10 * beta)
                run = {
                    "step": STEPS,
                    "gold": gold,
                    "proxy": gold,
                    "kl_seq": kl,
                    "kl_token": kl / 12,
                }
                rows.append(
                    pd.DataFrame(run).assign(
                        block=model, arm=study.arm(beta), seed=s, entropy_token=0.5
                    )
                )
    return pd.concat(rows, ignore_index=True)


def machine() -> dict:
    arms = {study.arm(beta): {} for beta in study.BETAS}
    blocks = {
        name: {"arms": arms, "seeds": list(study.SEEDS), "wall_s": wall, "ends": {"done": 40}}
        for name, wall in SPEED.items()
    }
    return {"env": {}, "blocks": blocks}


def analyse(**changes):
    return study.analyse(made_up(**changes), pd.DataFrame(), machine())


@pytest.fixture(scope="module")
def found():
    return analyse()


class TestOneModel:
    def test_the_order_at_the_end_is_that_which_was_put_in(self, found):
        own = found["models"]["large"]

        assert own["at_end"]["best"] == study.arm(0.15)
        assert own["at_end"]["not_told_from_best"] == []
        assert own["at_end"]["num_apart"] == own["at_end"]["pairs"] == 10
        assert own["arms"][study.arm(0.15)]["at_end"]["mean"] == pytest.approx(1.1, abs=0.05)

    def test_settings_that_are_alike_are_not_told_apart(self):
        own = analyse(alike=True, seed=1)["models"]["large"]["at_end"]

        assert own["num_apart"] == 0
        assert len(own["not_told_from_best"]) == len(study.BETAS) - 1

    def test_kl_at_the_end_is_that_of_the_runs(self, found):
        arms = found["models"]["small"]["arms"]

        assert arms["no KL"]["kl_end"]["mean"] == pytest.approx(7.67, abs=0.01)
        assert arms[study.arm(0.5)]["kl_end"]["mean"] == pytest.approx(7.67 / 6, abs=0.01)


class TestShort:
    def test_an_early_look_is_misled_by_what_rises_first(self, found):
        told = found["early"]["large"]["0.25"]["at_end"]

        assert told["chosen"] == "no KL"
        assert told["best"] == study.arm(0.15)
        assert told["regret"]["low"] < 0.84 < told["regret"]["high"]  # of the last two looks
        assert told["rank"]["high"] < 0.5

    def test_half_of_the_steps_tell_more_than_a_quarter(self, found):
        own = found["early"]["large"]

        assert own["0.5"]["at_end"]["rank"]["mean"] > own["0.25"]["at_end"]["rank"]["mean"]
        assert "rank" not in own["1"]["at_end"]  # a whole run foretells itself
        assert own["1"]["at_end"]["rank_other_seeds"] > 0.9

    def test_choosing_by_one_seed_of_noise_loses_what_choosing_at_random_does(self):
        rng = np.random.default_rng(0)
        truth = np.linspace(0, 1, 6)[:, None]

        losses = [
            study._one_seed_losses(
                rng.normal(size=(6, 8)), truth + rng.normal(0, 0.01, (6, 8))
            ).mean()
            for _ in range(200)
        ]

        assert np.mean(losses) == pytest.approx(0.5, abs=0.03)

    def test_other_seeds_agree_only_on_what_is_no_noise(self):
        rng = np.random.default_rng(0)
        noise = rng.normal(size=(60, 6, 8))
        signal = np.arange(6)[:, None] + 0.01 * rng.normal(size=(6, 8))

        assert abs(np.mean([study._other_seeds(one, one, 20) for one in noise])) < 0.15
        assert study._other_seeds(signal, signal) == pytest.approx(1.0)


class TestSmall:
    def test_a_small_model_of_the_same_order_chooses_right(self, found):
        told = found["small"]["small"]["1"]["at_end"]

        assert told["chosen"] == told["best"] == study.arm(0.15)
        assert told["rank"]["low"] > 0.8
        assert told["regret"]["high"] < 0.05

    def test_one_of_another_order_does_not(self):
        told = analyse(flip_small=True)["small"]["small"]["1"]["at_end"]

        assert told["chosen"] == study.arm(0.05)
        assert told["rank"]["mean"] < 0.5
        assert told["regret"]["low"] < 0.5 < told["regret"]["high"]

    def test_cost_is_time_by_model_and_share(self, found):
        assert found["small"]["small"]["0.25"]["cost"] == pytest.approx(1 / 16)
        assert found["early"]["large"]["0.5"]["cost"] == pytest.approx(0.5)
        assert found["lora_for_full"]["1"]["cost"] == pytest.approx(1.0)


def test_tables_and_figures_are_made_of_what_was_found(found, tmp_path):
    written = study.tables(found)
    study.draw(made_up(), pd.DataFrame(), found, tmp_path)

    assert written["arms-stopped"].count("\n") == 1 + 4
    assert written["small"].count("\n") == 1 + 4 * 3 * 2
    assert "nan" not in "".join(written.values())
    assert {p.name for p in tmp_path.iterdir()} == {"gold.png", "regret.png"}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return run_small("2026-11-30-short-small", tmp_path_factory.mktemp("short-small"))


@pytest.mark.slow
class TestScaledDown:
    def test_a_beta_that_is_far_too_large_is_seen_early_and_on_the_small_model(self, small):
        for model in ("small", "medium"):
            assert small["early"][model]["0.5"]["at_end"]["chosen"] == study.arm(0.15)
        assert small["small"]["small"]["0.5"]["at_end"]["chosen"] == study.arm(0.15)
        assert small["small"]["small"]["1"]["at_end"]["best"] == study.arm(0.15)
        # One test, so that two processes don't both train.
        for own in small["models"].values():
            kl = [own["arms"][study.arm(b)]["kl_end"]["mean"] for b in (0.15, 5.0)]
            assert kl[1] < kl[0] / 3
