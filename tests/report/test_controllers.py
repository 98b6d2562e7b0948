"""Verdicts on curves whose truth is known: a simulated policy under the real controllers.

KL follows a / beta with a first-order lag: level += (a / beta - level) / tau.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from kltune.report.controllers import Conduct, behaviour, find_lag
from kltune.spec.control import PRESETS, ControlSpec
from kltune.spec.trial import ControllerKind, TrialSpec
from kltune.trainer.controller import ControlFacts, next_control, start_control

NAN = float("nan")
TARGET = 0.05
ROWS = 64

Curves = tuple[Sequence[float], Sequence[float], Sequence[float]]


def simulated(
    gain: float | None,
    kind: str = "proportional",
    *,
    plant: tuple[float, int] = (5.0, 1),
    noise: float = 0.0,
    steps: int = 300,
    is_flipped: bool = False,
    beta: float = 0.05,
) -> Curves:
    """KL, beta and target of every step; ``plant``: lag tau, and delay of its answer, in steps."""
    fields = {
        "beta": beta,
        "penalty": "k2-loss",
        "controller": kind,
        "target_kl": TARGET,
        "horizon": None if gain is None else ROWS / gain,
        "learning_rate": 1e-3,
    }
    facts = ControlFacts(TrialSpec.model_validate(fields), ControlSpec(), steps, ROWS)
    state, (tau, delay) = start_control(facts), plant
    rng, level = np.random.default_rng(0), 0.0
    kls: list[float] = []
    betas: list[float] = []
    for step in range(1, steps + 1):
        kls.append(level * math.exp(noise * rng.standard_normal()))
        betas.append(state.beta)
        level += (0.01 / betas[max(0, len(betas) - delay)] - level) / tau
        seen = TARGET**2 / max(kls[-1], 1e-9) if is_flipped else kls[-1]
        state = next_control(state, seen, step, facts)
    return kls, betas, [TARGET] * steps


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.2])
@pytest.mark.parametrize("plant", [(5.0, 1), (5.0, 5), (20.0, 1)])
def test_a_sweep_of_the_gain_passes_from_inert_over_holding_to_oscillating(
    plant: tuple[float, int], noise: float
) -> None:
    gains = (0.001, 0.003, 0.01, 0.03, 0.1, 1, 3, 4.5)
    found = [behaviour(*simulated(gain, plant=plant, noise=noise)).conduct for gain in gains]
    assert found == [
        Conduct.INERT,
        *[Conduct.DOES_NOT_HOLD] * 2,
        *[Conduct.HOLDS] * 2,
        *[Conduct.OSCILLATES] * 3,
    ]


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3])
def test_a_controller_with_the_wrong_sign_is_named(noise: float) -> None:
    found = behaviour(*simulated(0.1, noise=noise, is_flipped=True))
    assert found.conduct is Conduct.WRONG_SIGN
    assert found.right_share is not None
    assert found.right_share < 0.2


def test_the_right_sign_is_told_with_its_number_of_moves() -> None:
    found = behaviour(*simulated(0.1, noise=0.1))
    assert (found.right_share, found.num_moves) == (1.0, 299)


def test_a_few_moves_against_kl_are_no_wrong_sign() -> None:
    kl, target = [1.5] * 12, [1.0] * 12
    beta = [1.0, 0.8, 0.6, 0.4, 0.2, *[0.2] * 7]
    assert behaviour(kl, beta, target).conduct is not Conduct.WRONG_SIGN
    beta[5:] = [0.1] * 7
    assert behaviour(kl, beta, target).conduct is Conduct.WRONG_SIGN


def test_kl_that_stays_below_its_target_never_arrives() -> None:
    kl = [0.3 * (1 - math.exp(-step / 10)) for step in range(60)]
    beta = [0.98**step for step in range(60)]
    found = behaviour(kl, beta, [1.0] * 60)
    assert found.conduct is Conduct.NEVER_ARRIVES
    assert found.arrival is None
    assert found.lag is None
    assert found.end_ratio == pytest.approx(0.3, abs=0.01)
    assert found.end_steps == 6


def test_the_arrival_is_the_first_step_within_20_percent_or_beyond() -> None:
    beta, target = [1 + step / 10 for step in range(12)], [1.0] * 12
    assert behaviour([0, 0.5, 0.8, 0.84, *[1.0] * 8], beta, target).arrival == 3
    assert behaviour([0, 0.5, 7, *[1.0] * 9], beta, target).arrival == 2


def test_a_swing_has_its_period_and_size() -> None:
    steps = np.arange(200)
    kl = np.exp(math.log(1.6) * np.sin(2 * np.pi * steps / 25))
    beta = np.exp(0.5 * np.sin(2 * np.pi * (steps - 6) / 25))
    found = behaviour(list(kl), list(beta), [1.0] * 200)
    assert found.conduct is Conduct.OSCILLATES
    assert found.swings.period == pytest.approx(25, rel=0.03)
    assert found.swings.amplitude == pytest.approx(1.6, rel=0.03)
    assert found.swings.crossings == 15
    assert found.end_ratio == pytest.approx(1, abs=0.3)


def test_noise_about_the_target_is_no_swing() -> None:
    rng = np.random.default_rng(1)
    for size in (0.05, 0.15, 0.4):
        kl = np.exp(size * rng.standard_normal(1000))
        beta = np.exp(np.cumsum(0.01 * rng.standard_normal(1000)))
        found = behaviour(list(kl), list(beta), [1.0] * 1000)
        assert found.swings.crossings < 3
        assert found.conduct is not Conduct.OSCILLATES


@pytest.mark.parametrize("lag", [1, 3, 8])
def test_the_lag_of_an_answer_is_found_in_noise(lag: int) -> None:
    rng = np.random.default_rng(2)
    pushes = 0.1 * rng.standard_normal(400)
    beta = np.exp(np.cumsum(pushes))
    answer = np.concatenate([np.zeros(lag), -pushes[:-lag]]) + 0.1 * rng.standard_normal(400)
    found = find_lag(np.exp(np.cumsum(answer)), beta)
    assert found is not None
    assert found.is_told
    assert found.steps == lag
    assert found.correlation == pytest.approx(-(0.5**0.5), abs=0.1)
    assert found.noise == pytest.approx(3.1 / 20, rel=0.1)


def test_an_answer_that_is_not_there_cant_be_told() -> None:
    rng = np.random.default_rng(3)
    told = 0
    for _ in range(200):
        kl, beta = np.exp(np.cumsum(0.1 * rng.standard_normal((2, 120)), axis=1))
        found = find_lag(kl, beta)
        assert found is not None
        told += found.is_told
    assert told <= 12  # 2.5 % of 200 are 5


def test_a_plant_that_answers_later_is_found_to_be_later() -> None:
    lags = [behaviour(*simulated(3, plant=(5.0, d), noise=0.1)).lag for d in (1, 5)]
    assert all(lag is not None and lag.is_told for lag in lags)
    fast, slow = (lag.steps for lag in lags if lag is not None)
    assert fast < slow


def test_too_few_changes_have_no_lag() -> None:
    assert find_lag(np.linspace(1, 2, 12), np.linspace(2, 3, 12)) is None
    assert find_lag(np.linspace(1, 2, 60), np.ones(60)) is None


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_named_rules_are_judged_by_their_own_bands(noise: float) -> None:
    def conduct(name: str) -> Conduct:
        rule = PRESETS[ControllerKind(name)].rule
        return behaviour(*simulated(None, name, noise=noise), (rule.below, rule.above)).conduct

    assert conduct("threshold-1.5x") is Conduct.HOLDS
    assert conduct("threshold-1.2x0.8") is Conduct.HOLDS
    assert conduct("threshold-ppo2017") is Conduct.OSCILLATES
    assert conduct("threshold-1.2x") is Conduct.DOES_NOT_HOLD  # 5 looks in 300 steps


def test_kl_inside_a_dead_band_is_held_and_swings_inside_it_are_none() -> None:
    steps = np.arange(100)
    kl = list(1.3 ** np.sin(steps / 5))
    beta = list(np.linspace(1, 2, 100))
    assert behaviour(kl, beta, [1.0] * 100).conduct is Conduct.OSCILLATES
    wide = behaviour(kl, beta, [1.0] * 100, (2 / 3, 1.5))
    assert wide.swings.crossings == 0
    assert wide.conduct is Conduct.HOLDS


def test_steps_without_a_target_or_a_finite_kl_are_left_out() -> None:
    kl, beta, target = (list(column) for column in simulated(0.1))
    whole = behaviour(kl, beta, target)
    padded = behaviour([9.0, 9.0, NAN, *kl], [1e-6, 1e6, 1.0, *beta], [NAN, NAN, TARGET, *target])
    assert padded == whole


@pytest.mark.parametrize("num", [0, 1, 4, 9])
def test_a_short_record_says_nothing(num: int) -> None:
    found = behaviour([1.0] * num, [2.0**i for i in range(num)], [1.0] * num)
    assert found.conduct is Conduct.TOO_SHORT
    assert found.num_steps == num
