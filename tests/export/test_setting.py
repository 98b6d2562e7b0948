from __future__ import annotations

import json

import pytest
from export_case import SIGMA_R, STD_R, winner

from kltune.spec.trial import BetaUnit, KLUnit


def test_a_loss_coefficient_is_beta_over_sigma_r_under_grpo() -> None:
    assert winner(beta=0.1).coefficient(0.1) == pytest.approx(0.1 / SIGMA_R)


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [("dr-grpo", 0.1 * 7 / 8), ("rloo", 0.1), ("reinforce", 0.1 / STD_R), ("ppo", 0.1 / STD_R)],
)
def test_each_algorithm_divides_by_its_own(algorithm: str, expected: float) -> None:
    assert winner(trainer={"algorithm": algorithm}).coefficient(0.1) == pytest.approx(expected)


def test_a_kl_in_the_reward_has_its_share_beside_a_baseline_that_holds_its_own_reward() -> None:
    assert winner("k1-reward", trainer={"algorithm": "dr-grpo"}).coefficient(0.1) == pytest.approx(
        0.1 * 7 / 8
    )


def test_a_native_coefficient_stands_and_its_price_is_taken_back_to_reward() -> None:
    native = winner(beta=0.04, beta_unit=BetaUnit.NATIVE)
    assert native.coefficient(0.04) == 0.04
    assert native.price(0.04) == pytest.approx(0.04 * SIGMA_R)
    dr = winner(beta=0.04, beta_unit=BetaUnit.NATIVE, trainer={"algorithm": "dr-grpo"})
    assert dr.price(0.04) == pytest.approx(0.04 * 8 / 7)


def test_without_a_scale_the_recorded_coefficient_is_used_or_nothing() -> None:
    old = {"sigma_r": None, "std_r": None}
    assert winner(measured=old).coefficient(0.1) is None
    assert winner(measured={**old, "first_coefficient": 0.2}).coefficient(0.05) == pytest.approx(
        0.1
    )
    assert winner("k1-reward", measured={**old, "first_coefficient": 0.1}).coefficient(0.1) is None


def test_a_kl_is_given_in_both_units_at_the_length_asked_for() -> None:
    assert winner().both_units(0.5) == (0.5, 12.0)
    assert winner(kl_unit=KLUnit.SEQUENCE).both_units(6.0, 12.0) == (0.5, 6.0)


def test_the_beta_to_hold_is_the_final_windows_else_the_first() -> None:
    assert winner(beta=0.1).final_beta == pytest.approx(0.3)
    assert winner(beta=0.1, measured={"final_beta": None}).final_beta == 0.1


def test_as_json_is_strict_json() -> None:
    facts = json.loads(json.dumps(winner().as_json(), allow_nan=False))
    assert facts["setting"]["penalty"] == "k2-loss"
    assert facts["stop"]["kl_seq"] == 2.4
