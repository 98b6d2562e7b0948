from __future__ import annotations

from typing import Any

import pytest
from export_case import SIGMA_R, adaptive, target, winner

from kltune.export.setting import Winner
from kltune.export.verl import export_verl
from kltune.export.verl_kl import ACTOR, kl_keys
from kltune.spec.trial import KLUnit


def values(found: Winner, version: str | None = None, **sizes: Any) -> dict[str, Any]:
    return dict(export_verl(found, target(found, "verl", version, **sizes)).values)


def warnings(found: Winner, version: str | None = None) -> str:
    return "\n".join(export_verl(found, target(found, "verl", version)).warnings)


def test_the_two_switches_are_always_written_and_never_both_on() -> None:
    for penalty, in_reward in (("k1-reward", True), ("k2-loss", False), ("k3-loss", False)):
        found = values(winner(penalty))
        assert found["algorithm.use_kl_in_reward"] is in_reward
        assert found[f"{ACTOR}.use_kl_loss"] is not in_reward
    off = values(winner(None, beta=0.0))
    assert (off["algorithm.use_kl_in_reward"], off[f"{ACTOR}.use_kl_loss"]) == (False, False)


def test_in_the_reward_beta_is_the_raw_price_and_the_controller_is_kept() -> None:
    found = values(
        adaptive(beta=0.1, target_kl=6.0, kl_unit=KLUnit.SEQUENCE), batch=8192, mean_tokens=24.0
    )
    assert found["algorithm.kl_penalty"] == "kl"
    assert found["algorithm.kl_ctrl.type"] == "adaptive"
    assert found["algorithm.kl_ctrl.kl_coef"] == 0.1
    assert found["algorithm.kl_ctrl.target_kl"] == 0.25
    assert found["algorithm.kl_ctrl.horizon"] == 81920


def test_in_the_loss_beta_is_a_coefficient_and_the_controller_is_lost_with_a_warning() -> None:
    steered = adaptive(penalty="k2-loss", beta=0.1)
    found = values(steered)
    assert found[f"{ACTOR}.kl_loss_coef"] == pytest.approx(0.3 / SIGMA_R)
    assert "algorithm.kl_ctrl.type" not in found
    assert "never kl_loss_coef, so beta is held at 0.3" in warnings(steered)


@pytest.mark.parametrize(
    ("penalty", "version", "estimator"),
    [
        ("k2-loss", "0.9.0", "mse"),
        ("k2-loss", "0.3.0", "mse"),
        ("wk3-loss", "0.9.0", "mse"),
        ("k3plus-loss", "0.8.0", "low_var_kl+"),
        ("k3plus-loss", "0.7.1", "mse"),
        ("k3plus-loss", "0.6.0", "mse"),
        ("k3-loss", "0.9.0", "low_var_kl"),
        ("forward-loss", "0.9.0", "low_var_kl"),
    ],
)
def test_the_estimator_has_the_gradient_that_was_studied(
    penalty: str, version: str, estimator: str
) -> None:
    assert values(winner(penalty), version)[f"{ACTOR}.kl_loss_type"] == estimator


def test_a_missing_importance_ratio_and_the_clamp_are_warned_of() -> None:
    assert "importance ratio" in warnings(winner("k2-loss", trainer={"epochs": 2}))
    assert "importance ratio" not in warnings(winner("k2-loss"))
    assert "±10 nats" in warnings(winner("k3-loss"))
    assert "±10 nats" not in warnings(winner("k2-loss"))


def test_before_0_4_0_beta_zero_must_be_a_price_of_zero() -> None:
    assert values(winner(None, beta=0.0), "0.3.0")["algorithm.kl_ctrl.kl_coef"] == 0.0
    steered = adaptive()
    assert values(steered, "0.3.0")["algorithm.kl_ctrl.type"] == "fixed"
    assert "no horizon among its keys" in warnings(steered, "0.3.0")


def test_the_keys_come_without_the_rest() -> None:
    from kltune.export import convert

    found = winner()
    held = convert.held(found, framework="verl", why_not=None)
    names = {key.name for key in kl_keys(found, target(found, "verl"), held, [])}
    assert names == {
        "algorithm.use_kl_in_reward",
        f"{ACTOR}.use_kl_loss",
        f"{ACTOR}.kl_loss_type",
        f"{ACTOR}.kl_loss_coef",
    }
