"""Where a nat is paid, and how much. tiny.settings(): sigma_R .5, spread over all completions .8."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tiny

from kltune.spec.penalty import Penalty
from kltune.spec.trial import BetaUnit
from kltune.trainer.prices import Prices, prices


def priced(
    penalty: Penalty | None, algorithm: str = "grpo", unit: BetaUnit = BetaUnit.REWARD, factor: float = 1.0
) -> Prices:  # fmt: skip
    settings = replace(tiny.settings(algorithm=algorithm), beta_unit=unit)
    return prices(settings, tiny.trial(beta=0.2, penalty=penalty), 0.2, factor)


@pytest.mark.parametrize("penalty", list(Penalty))
def test_a_nat_is_paid_where_the_penalty_says_and_nowhere_else(penalty: Penalty) -> None:
    found = priced(penalty)
    assert (found.reward > 0, found.loss > 0) == (penalty.in_reward, penalty.in_loss)
    assert found.coefficient == (found.loss or found.reward)


@pytest.mark.parametrize(
    ("algorithm", "coefficient"),
    [("grpo", 0.4), ("dr-grpo", 0.15), ("rloo", 0.2), ("reinforce", 0.25), ("ppo", 0.25)],
)
def test_in_the_loss_a_reward_beta_is_divided_like_the_advantages(
    algorithm: str, coefficient: float
) -> None:
    assert priced(Penalty.K2_LOSS, algorithm).loss == pytest.approx(coefficient)
    assert priced(Penalty.K1_REWARD, algorithm) == Prices(0.2, 0.0)


@pytest.mark.parametrize("unit", list(BetaUnit))
def test_exact_full_has_one_price_in_both_places(unit: BetaUnit) -> None:
    grpo = priced(Penalty.EXACT_FULL, "grpo", unit)
    assert (grpo.reward, grpo.loss) == (0.2, pytest.approx(0.4))
    assert priced(Penalty.EXACT_FULL, "rloo", unit) == Prices(0.2, 0.2)
    # a group of 4: Dr.GRPO's mean takes a quarter of the reward's gradient, so of the loss's part too
    assert priced(Penalty.EXACT_FULL, "dr-grpo", unit) == Prices(0.2, pytest.approx(0.15))


def test_a_native_beta_is_never_scaled_by_the_baselines_share() -> None:
    assert priced(Penalty.K2_LOSS, "dr-grpo", BetaUnit.NATIVE).loss == 0.2


def test_a_native_beta_is_the_coefficient() -> None:
    assert priced(Penalty.K3_LOSS, unit=BetaUnit.NATIVE, factor=3.0) == Prices(0.0, 0.2)
    assert priced(Penalty.K1_REWARD, unit=BetaUnit.NATIVE, factor=3.0) == Prices(0.2, 0.0)


def test_a_shaped_reward_has_a_shaped_price_beside_the_same_normalised_advantages() -> None:
    # z-scored by .5: a raw reward is worth 2 shaped ones, so is a nat
    assert priced(Penalty.K1_REWARD, factor=2.0).reward == pytest.approx(0.4)
    assert priced(Penalty.K2_LOSS, "rloo", factor=2.0).loss == pytest.approx(0.4)
    assert priced(Penalty.K2_LOSS, "grpo", factor=2.0).loss == pytest.approx(0.4)


def test_beta_zero_costs_nothing() -> None:
    assert prices(tiny.settings(), tiny.trial(beta=0.0, penalty=None), 0.0, 1.0) == Prices(0.0, 0.0)


def test_a_ppo_that_is_not_whitened_divides_by_nothing() -> None:
    settings = tiny.settings(algorithm="ppo", critic={"whiten": False})
    trial = tiny.trial(beta=0.2, penalty="wk3-loss")
    assert prices(settings, trial, 0.2, 1.0) == Prices(0.0, 0.2)
    assert priced(Penalty.WK3_LOSS, "ppo").loss == pytest.approx(0.25)
