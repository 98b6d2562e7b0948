from __future__ import annotations

import math

import pytest

from kltune.spec.trial import BetaUnit
from kltune.units import (
    advantage_scale,
    beta_of_coefficient,
    in_advantage_units,
    kl_per_sequence,
    kl_per_token,
    loss_coefficient,
    reward_price,
)


def test_kl_per_token_times_mean_length_is_kl_per_sequence() -> None:
    assert kl_per_sequence(0.05, 40) == pytest.approx(2.0)  # field case E2
    assert kl_per_token(6.0, 40) == pytest.approx(0.15)


@pytest.mark.parametrize("length", [0.0, -3.0, math.nan, math.inf])
def test_a_length_that_is_not_above_zero_is_refused(length: float) -> None:
    with pytest.raises(ValueError, match="mean completion length"):
        kl_per_token(6.0, length)


@pytest.mark.parametrize(
    ("algorithm", "scale"),
    [("grpo", 0.5), ("dr-grpo", None), ("rloo", None), ("reinforce", 0.8), ("ppo", 0.8)],
)
def test_only_algorithms_that_divide_their_advantages_have_a_scale(
    algorithm: str, scale: float | None
) -> None:
    assert advantage_scale(algorithm, 0.5, 0.8) == scale


def test_a_reward_beta_in_the_loss_is_divided_by_the_advantages_scale() -> None:
    assert loss_coefficient(0.02, BetaUnit.REWARD, 0.5) == pytest.approx(0.04)
    assert loss_coefficient(0.02, BetaUnit.REWARD, 2.0) == pytest.approx(0.01)
    assert loss_coefficient(0.02, BetaUnit.REWARD, None) == 0.02


def test_shaping_moves_the_price_but_not_a_coefficient_beside_normalised_advantages() -> None:
    # a score divided by 4 has a price divided by 4, and advantages divided by its own spread
    assert reward_price(0.02, BetaUnit.REWARD, 0.25) == pytest.approx(0.005)
    assert loss_coefficient(0.02, BetaUnit.REWARD, 0.5, 0.25) == pytest.approx(0.04)
    assert loss_coefficient(0.02, BetaUnit.REWARD, None, 0.25) == pytest.approx(0.005)


def test_a_native_beta_counts_as_it_stands() -> None:
    assert loss_coefficient(0.04, BetaUnit.NATIVE, 0.5, 3.0) == 0.04
    assert loss_coefficient(0.04, BetaUnit.NATIVE, 0.0) == 0.04
    assert reward_price(0.05, BetaUnit.NATIVE, 3.0) == 0.05


def test_a_price_and_its_coefficient_are_the_same_pull() -> None:
    # advantage = shaped reward / (scale x factor), so its price per nat is divided by the same
    assert in_advantage_units(0.3, 0.5, 0.25) == pytest.approx(2.4)
    assert in_advantage_units(0.3, None, 0.25) == 0.3
    assert in_advantage_units(0.0, 0.0) == 0.0


@pytest.mark.parametrize("unit", list(BetaUnit))
@pytest.mark.parametrize("scale", [0.3, None])
def test_beta_of_coefficient_is_the_inverse_of_loss_coefficient(
    unit: BetaUnit, scale: float | None
) -> None:
    beta = beta_of_coefficient(0.04, unit, scale)
    assert loss_coefficient(beta, unit, scale) == pytest.approx(0.04)


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf])
def test_a_sigma_that_is_not_above_zero_is_refused_with_the_way_out(sigma: float) -> None:
    with pytest.raises(ValueError, match=r"sigma_R = .*beta_unit: native"):
        loss_coefficient(0.1, BetaUnit.REWARD, sigma)


def test_beta_zero_needs_no_scale() -> None:
    assert loss_coefficient(0.0, BetaUnit.REWARD, 0.0) == 0.0


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(ValueError, match="beta_unit"):
        loss_coefficient(0.1, "nats", 1.0)
