from __future__ import annotations

import math

import pytest

from kltune.spec.trial import BetaUnit, Penalty
from kltune.units import kl_per_sequence, kl_per_token, loss_coefficient, reward_beta


def test_kl_per_token_times_mean_length_is_kl_per_sequence() -> None:
    assert kl_per_sequence(0.05, 40) == pytest.approx(2.0)  # field case E2
    assert kl_per_token(6.0, 40) == pytest.approx(0.15)


@pytest.mark.parametrize("length", [0.0, -3.0, math.nan, math.inf])
def test_a_length_that_is_not_above_zero_is_refused(length: float) -> None:
    with pytest.raises(ValueError, match="mean completion length"):
        kl_per_token(6.0, length)


def test_a_reward_beta_in_the_loss_is_divided_by_sigma() -> None:
    assert loss_coefficient(0.02, BetaUnit.REWARD, Penalty.K3_LOSS, 0.5) == pytest.approx(0.04)
    assert loss_coefficient(0.02, BetaUnit.REWARD, Penalty.K2_LOSS, 2.0) == pytest.approx(0.01)


def test_a_native_beta_counts_as_it_stands() -> None:
    assert loss_coefficient(0.04, BetaUnit.NATIVE, Penalty.K3_LOSS, 0.5) == 0.04
    assert loss_coefficient(0.04, BetaUnit.NATIVE, Penalty.K3_LOSS, 0.0) == 0.04


@pytest.mark.parametrize("unit", list(BetaUnit))
def test_in_the_reward_beta_is_raw_reward_per_nat_in_both_units(unit: BetaUnit) -> None:
    assert loss_coefficient(0.05, unit, Penalty.K1_REWARD, 0.0) == 0.05
    assert reward_beta(0.05, unit, Penalty.K1_REWARD, 0.0) == 0.05


@pytest.mark.parametrize("penalty", list(Penalty))
@pytest.mark.parametrize("unit", list(BetaUnit))
def test_reward_beta_is_the_inverse_of_loss_coefficient(unit: BetaUnit, penalty: Penalty) -> None:
    assert loss_coefficient(reward_beta(0.04, unit, penalty, 0.3), unit, penalty, 0.3) == (
        pytest.approx(0.04)
    )


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf])
def test_a_sigma_that_is_not_above_zero_is_refused_with_the_way_out(sigma: float) -> None:
    with pytest.raises(ValueError, match=r"sigma_R = .*beta_unit: native"):
        loss_coefficient(0.1, BetaUnit.REWARD, Penalty.K2_LOSS, sigma)


def test_beta_zero_needs_no_scale() -> None:
    assert loss_coefficient(0.0, BetaUnit.REWARD, None, 0.0) == 0.0


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(ValueError, match="beta_unit"):
        loss_coefficient(0.1, "nats", Penalty.K2_LOSS, 1.0)
