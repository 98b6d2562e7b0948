from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from export_case import SIGMA_R, STD_R, adaptive, target, winner

from kltune.errors import SpecError
from kltune.export import convert
from kltune.export.convert import Gradient, gradient, gradient_of, held
from kltune.export.openrlhf import export_openrlhf
from kltune.export.verl import export_verl
from kltune.spec.control import ControlSpec
from kltune.spec.penalty import Penalty
from kltune.spec.trial import BetaUnit, KLUnit


def test_every_penalty_has_the_class_of_its_gradient() -> None:
    full = {Penalty.K1_REWARD, Penalty.EXACT_FULL}
    forward = {Penalty.K3_LOSS, Penalty.FORWARD_LOSS}
    local = {
        Penalty.K2_LOSS,
        Penalty.WK1_LOSS,
        Penalty.WK3_LOSS,
        Penalty.K3PLUS_LOSS,
        Penalty.EXACT_LOSS,
        Penalty.TOPK_LOSS,
    }
    for penalty in Penalty:
        found = gradient_of(penalty)
        expected = Gradient.OTHER
        for group, kind in (
            (full, Gradient.FULL),
            (forward, Gradient.FORWARD),
            (local, Gradient.LOCAL),
        ):
            expected = kind if penalty in group else expected
        assert found is expected, penalty
    assert gradient(winner(beta=0.0)) is Gradient.NONE


def test_o6_the_price_and_the_coefficient_have_the_same_optimum_on_a_bandit() -> None:
    """Pi* is proportional to ref x exp(R / price), whatever the advantages were divided by."""
    found = winner("k1-reward", beta=0.3)
    where = target(found, "verl")
    price = convert.price(found, where, 0.3).value
    beside = convert.coefficient(found, where, 0.3).value
    reward, ref = np.array([0.0, 0.4, 1.0]), np.array([0.5, 0.3, 0.2])

    def optimum(reward: Any, price: float) -> Any:
        weights = ref * np.exp(reward / price)
        return weights / weights.sum()

    divided = (reward - reward.mean()) / SIGMA_R
    np.testing.assert_allclose(optimum(divided, beside), optimum(reward, price), rtol=1e-6)
    assert not np.allclose(optimum(reward, beside), optimum(reward, price), rtol=1e-2)


def test_o7_six_nats_a_sequence_at_24_tokens_are_a_quarter_nat_a_token() -> None:
    found = adaptive(target_kl=6.0, kl_unit=KLUnit.SEQUENCE)
    where = target(found, "verl", mean_tokens=24.0)
    assert convert.target_per_token(found, where) == convert.Number(
        0.25, "6 nats/sequence / 24 tokens: nats/token"
    )
    per_sequence = convert.target_per_sequence(found, where)
    assert per_sequence is not None
    assert per_sequence.value == 6.0


def test_a_target_per_token_stays_one_and_is_spread_over_the_targets_length() -> None:
    found = adaptive(target_kl=0.25)
    where = target(found, "verl", mean_tokens=300.0, max_new_tokens=1024)
    per_token = convert.target_per_token(found, where)
    per_sequence = convert.target_per_sequence(found, where)
    assert per_token is not None
    assert per_sequence is not None
    assert (per_token.value, per_sequence.value) == (0.25, 75.0)
    assert convert.target_per_token(winner(), target(winner(), "verl")) is None


def test_o8_the_horizon_keeps_the_gain_per_step() -> None:
    found = adaptive(horizon=640)  # 64 sequences a step: gain .1
    where = target(found, "verl", batch=1024 * 8, group=8)
    assert convert.horizon(found, where).value == 81920
    assert "gain 0.1 per step" in convert.horizon(found, where).words


def test_a_mean_kl_in_the_reward_is_priced_per_sequence_by_the_targets_length() -> None:
    found = winner("k1-reward", beta=2.4, trainer={"kl": {"credit": "length-mean"}})
    assert convert.price(found, target(found, "verl"), 2.4).value == pytest.approx(0.1)
    where = target(found, "verl", mean_tokens=48.0, max_new_tokens=64)
    assert convert.price(found, where, 2.4).value == pytest.approx(0.05)
    assert convert.coefficient(found, where, 2.4).value == pytest.approx(0.05 / SIGMA_R)


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        ("grpo", 0.1 / SIGMA_R),
        ("reinforce", 0.1 / STD_R),
        ("dr-grpo", 0.1 * 15 / 16),
        ("rloo", 0.1),
    ],
)
def test_the_coefficient_stands_beside_the_targets_advantages(
    algorithm: str, expected: float
) -> None:
    found = winner(trainer={"algorithm": algorithm})
    where = target(found, "verl", group=16)
    assert convert.coefficient(found, where, 0.1).value == pytest.approx(expected)


def test_an_undivided_baseline_that_holds_its_own_reward_takes_its_share_off_the_price() -> None:
    found = winner(trainer={"algorithm": "rloo"})
    kept = convert.coefficient(found, target(found, "trl"), 0.1, keeps_own=True)
    assert kept.value == pytest.approx(0.1 * 7 / 8)
    assert "(G - 1) / G, G = 8" in kept.words


def test_a_native_loss_coefficient_is_carried_over_as_it_stands() -> None:
    found = winner("k3-loss", beta=0.04, beta_unit=BetaUnit.NATIVE, measured={"sigma_r": None})
    assert convert.coefficient(found, target(found, "trl"), 0.04).value == 0.04
    dr = winner("k3-loss", beta=0.04, beta_unit=BetaUnit.NATIVE, trainer={"algorithm": "dr-grpo"})
    assert convert.coefficient(dr, target(dr, "trl"), 0.04).value == pytest.approx(0.04)


def test_a_scale_that_is_not_on_record_is_refused_with_the_way_out() -> None:
    found = winner(measured={"sigma_r": None})
    with pytest.raises(
        SpecError, match=r"sigma_r of the reference is not on record.*run the sweep"
    ):
        convert.coefficient(found, target(found, "trl"), 0.1)
    recorded = winner(measured={"sigma_r": None, "first_coefficient": 0.2})
    assert convert.coefficient(recorded, target(recorded, "trl"), 0.1).value == 0.2


def test_a_controller_is_kept_only_where_the_target_has_one() -> None:
    kept = convert.held(adaptive(beta=0.1), framework="verl", why_not=None)
    assert (kept.beta, kept.is_adaptive, kept.warnings) == (0.1, True, ())
    held = convert.held(adaptive(beta=0.1), framework="TRL", why_not="TRL has no controller")
    assert (held.beta, held.is_adaptive) == (pytest.approx(0.3), False)
    assert (
        "TRL has no controller, so beta is held at 0.3, the median of the study's steps 36 to 40"
        in (held.warnings[0])
    )
    fixed = convert.held(winner(beta=0.1), framework="TRL", why_not="TRL has no controller")
    assert (fixed.beta, fixed.warnings) == (0.1, ())


@pytest.mark.parametrize("kind", ["schedule", "threshold", "threshold-ppo2017"])
def test_a_controller_that_no_framework_has_is_held_everywhere(kind: str) -> None:
    target_kl = None if kind == "schedule" else 0.05
    found = winner("k1-reward", beta=0.1, controller=kind, target_kl=target_kl)
    held = convert.held(found, framework="verl", why_not=None)
    assert (held.beta, held.is_adaptive) == (pytest.approx(0.3), False)
    assert f"verl has no controller of the kind {kind}" in held.warnings[0]


def test_options_that_no_framework_has_are_named() -> None:
    found = adaptive(control=ControlSpec(ema=0.9, beta_max=1.0))
    held = convert.held(found, framework="verl", why_not=None)
    assert held.warnings == (
        "control.ema, control.beta_max: verl's controller has no such thing; the plain one is exported",
    )


def test_a_beta_held_without_a_record_reads_well() -> None:
    found = adaptive(measured={"window": None})
    (text,) = held(found, framework="TRL", why_not="TRL has no controller").warnings
    assert "the start value of the study" in text
    assert "the the" not in text


@pytest.mark.parametrize(
    ("clip", "wider"), [(None, True), (20.0, True), (10.0, False), (5.0, False)]
)
def test_a_clamp_is_a_difference_only_where_a_kl_could_pass_it(
    clip: float | None, wider: bool
) -> None:
    trainer = {} if clip is None else {"kl": {"clip": clip}}
    found = winner("k3-loss", trainer=trainer)
    assert convert.is_wider(found) is wider
    for framework, build in (("openrlhf", export_openrlhf), ("verl", export_verl)):
        told = build(found, target(found, framework)).warnings
        assert any("±10 nats" in text for text in told) is wider
