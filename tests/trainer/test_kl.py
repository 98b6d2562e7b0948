"""Values of estimators and penalties against enumeration in float64; their gradients: test_kl_gradient."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from toy import PI, REF, UNIFORM, U, columns

from kltune.spec.penalty import Penalty
from kltune.trainer import kl
from kltune.trainer.kl import TokenKL

TOP_TWO = torch.tensor([True, True, False, False])


def test_estimators_of_three_tokens_by_hand() -> None:
    # field case A1
    log_ratio = (
        torch.tensor([-1.0, -2.0, -0.5]).double() - torch.tensor([-1.2, -1.5, -0.6]).double()
    )
    assert float(kl.k1(log_ratio).sum()) == pytest.approx(-0.2, rel=1e-6)
    assert float(kl.k1(log_ratio).mean()) == pytest.approx(-0.066667, abs=5e-7)
    assert float(kl.k2(log_ratio).sum()) == pytest.approx(0.15, rel=1e-6)
    assert float(kl.k2(log_ratio).mean()) == pytest.approx(0.05, rel=1e-6)
    assert float(kl.k3(log_ratio).sum()) == pytest.approx(0.172289, abs=5e-7)
    assert float(kl.k3(log_ratio).mean()) == pytest.approx(0.057430, abs=5e-7)
    assert float(kl.absolute(log_ratio).sum()) == pytest.approx(0.8, rel=1e-6)


def test_only_k1_is_ever_negative() -> None:
    log_ratio = torch.linspace(-5, 5, 101, dtype=torch.float64)
    assert (kl.k1(log_ratio) < 0).any()
    for estimator in (kl.k2, kl.k3, kl.absolute):
        assert (estimator(log_ratio) >= 0).all()


def test_expected_values_and_spreads_of_the_toy() -> None:
    def moments(values: Tensor) -> tuple[float, float]:
        mean = (PI * values).sum()
        return float(mean), float((PI * (values - mean).square()).sum().sqrt())

    assert float(kl.exact(PI.log(), REF.log())) == pytest.approx(0.456435, abs=5e-7)
    assert float(kl.forward(PI.log(), REF.log())) == pytest.approx(0.456435, abs=5e-7)
    for estimator, mean, spread in (
        (kl.k1, 0.456435, 0.9137),
        (kl.k2, 0.521554, 0.4394),
        (kl.k3, 0.456435, 0.4662),
    ):
        assert moments(estimator(U)) == pytest.approx((mean, spread), abs=5e-5)
    assert moments(kl.k2(U))[0] == pytest.approx(0.521554, abs=5e-7)
    assert moments(kl.k3(U))[0] == pytest.approx(0.456435, abs=5e-7)
    assert moments(kl.absolute(U))[0] == pytest.approx(0.895880, abs=5e-7)
    assert float((REF.square() / PI).sum() - 1) == pytest.approx(1.2083, abs=5e-5)
    assert float((UNIFORM * kl.k1(U)).sum()) == pytest.approx(0, abs=1e-15)
    assert float((UNIFORM * kl.k3(U)).sum()) == pytest.approx(0.6042, abs=5e-5)


def test_k3_of_the_inverted_ratio_would_be_another_number() -> None:
    assert float((PI * kl.k3(-U)).sum()) == pytest.approx(0.7519, abs=5e-5)


@pytest.mark.parametrize("penalty", [Penalty.WK1_LOSS, Penalty.WK3_LOSS, Penalty.TOPK_LOSS])
def test_off_policy_the_weighted_values_are_the_kl(penalty: Penalty) -> None:
    terms = kl.loss_term(penalty, columns(PI.log(), UNIFORM.log(), REF.log()))
    assert float((UNIFORM * terms).sum()) == pytest.approx(0.456435, abs=5e-7)


def test_k3plus_has_the_value_of_k3() -> None:
    inputs = columns(PI.log(), UNIFORM.log(), REF.log())
    torch.testing.assert_close(kl.loss_term(Penalty.K3PLUS_LOSS, inputs), kl.k3(U))


@pytest.mark.parametrize("penalty", list(Penalty))
def test_a_penalty_is_refused_where_it_has_no_part(penalty: Penalty) -> None:
    inputs = columns(PI.log().requires_grad_(True), PI.log(), REF.log())
    if not penalty.in_loss:
        with pytest.raises(ValueError, match="in the reward"):
            kl.loss_term(penalty, inputs)
    if penalty.in_reward:
        assert not kl.reward_term(penalty, inputs).requires_grad
    else:
        with pytest.raises(ValueError, match="in the loss"):
            kl.reward_term(penalty, inputs)
    with pytest.raises(ValueError, match="top-k columns"):
        kl.loss_term(Penalty.TOPK_LOSS, replace(inputs, top_k=None))


def test_an_overflow_in_the_estimator_nobody_asked_for_leaves_the_gradient_finite() -> None:
    logprobs = torch.tensor([-400.0, -1.0], requires_grad=True)  # exp(400) is inf in float32
    inputs = columns(logprobs, logprobs.detach(), torch.tensor([0.0, -1.0]))
    (grad,) = torch.autograd.grad(kl.loss_term(Penalty.K2_LOSS, inputs).sum(), logprobs)
    torch.testing.assert_close(grad, torch.tensor([-400.0, 0.0]))
    assert math.isinf(float(kl.loss_term(Penalty.K3_LOSS, inputs).detach().sum()))
    far = replace(inputs, old_logprobs=torch.tensor([-500.0, -1.0]), in_top_k=TOP_TWO[:2])
    (grad,) = torch.autograd.grad(kl.loss_term(Penalty.TOPK_LOSS, far).sum(), logprobs)
    assert torch.isfinite(grad).all()


def test_a_clip_cuts_value_and_gradient_and_says_where() -> None:
    values = torch.tensor([-12.0, -3.0, 0.0, 10.0, 11.0, math.nan], requires_grad=True)
    clipped, where = kl.clip_term(values, 10.0)
    torch.testing.assert_close(
        clipped.detach(), torch.tensor([-10.0, -3.0, 0.0, 10.0, 10.0, math.nan]), equal_nan=True
    )
    assert where.tolist() == [True, False, False, False, True, False]
    (grad,) = torch.autograd.grad(clipped[:5].sum(), values)
    assert grad.tolist()[:5] == [0.0, 1.0, 1.0, 1.0, 0.0]
    same, nowhere = kl.clip_term(values, None)
    assert same is values
    assert not nowhere.any()


@pytest.mark.parametrize("penalty", [p for p in Penalty if p.in_loss])
def test_a_clipped_penalty_survives_an_overflow_of_its_estimator(penalty: Penalty) -> None:
    logprobs = torch.tensor([-400.0, -1.0, -3.0], requires_grad=True)
    old = torch.tensor([-400.0, -1.1, -3.0])
    inputs = columns(logprobs, old, torch.tensor([0.0, -1.5, -2.0]))
    inputs = replace(inputs, in_top_k=torch.zeros(3).bool())
    values, where = kl.clipped_loss_term(penalty, inputs, 10.0)
    plain = kl.loss_term(penalty, inputs).detach()
    torch.testing.assert_close(values.detach(), plain.clamp(-10, 10))
    assert where.tolist() == (plain.abs() > 10).tolist()
    (grad,) = torch.autograd.grad(values.sum(), logprobs, retain_graph=True)
    assert torch.isfinite(grad).all()
    kept = TokenKL(*(getattr(inputs, name)[~where] for name in TokenKL.__dataclass_fields__))
    (inside,) = torch.autograd.grad(kl.loss_term(penalty, kept).sum(), logprobs)
    torch.testing.assert_close(grad, inside)


def test_exact_is_from_policy_to_reference() -> None:
    policy = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    reference = torch.tensor([0.4, 0.3, 0.3], dtype=torch.float64)
    there = sum(p * math.log(p / q) for p, q in ((0.7, 0.4), (0.2, 0.3), (0.1, 0.3)))
    back = sum(q * math.log(q / p) for p, q in ((0.7, 0.4), (0.2, 0.3), (0.1, 0.3)))
    assert there != pytest.approx(back, rel=0.01)
    assert float(kl.exact(policy.log(), reference.log())) == pytest.approx(there, rel=1e-12)
    assert float(kl.forward(policy.log(), reference.log())) == pytest.approx(back, rel=1e-12)
    both = float(kl.jeffreys(policy.log(), reference.log()))
    assert both == pytest.approx(there + back, rel=1e-12)


def test_the_direction_is_the_policy_first() -> None:
    # field case A5
    policy = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64).log()
    reference = torch.full((4,), 0.25, dtype=torch.float64).log()
    assert float(kl.exact(policy, reference)) == pytest.approx(0.244174, abs=5e-7)
    assert float(kl.forward(policy, reference)) == pytest.approx(0.311199, abs=5e-7)


def test_a_forbidden_token_adds_nothing_to_the_exact_kl() -> None:
    # field case A8
    reference = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64).log()
    for forbidden in (reference, torch.tensor([0.5, 0.5, math.nan]).double().log()):
        policy = torch.tensor([0.6, 0.4, 0.0], dtype=torch.float64).log().requires_grad_(True)
        value = kl.exact(policy, forbidden)
        assert float(value.detach()) == pytest.approx(0.0201355, abs=5e-8)
        assert torch.isfinite(torch.autograd.grad(value, policy)[0]).all()


def test_a_token_that_only_the_policy_emits_makes_the_exact_kl_infinite() -> None:
    policy = torch.tensor([0.5, 0.5], dtype=torch.float64).log()
    assert math.isinf(float(kl.exact(policy, torch.tensor([1.0, 0.0]).double().log())))


def test_a_policy_that_is_not_finite_does_not_pass_for_one_without_kl() -> None:
    policy = torch.full((3,), math.nan)
    assert math.isnan(float(kl.exact(policy, torch.zeros(3))))
    assert math.isnan(float(kl.forward(policy, torch.zeros(3))))


def test_exact_works_over_any_leading_shape() -> None:
    generator = torch.Generator().manual_seed(0)
    policy, reference = (
        torch.randn(2, 3, 5, generator=generator, dtype=torch.float64).log_softmax(-1)
        for _ in range(2)
    )
    expected = (policy.exp() * (policy - reference)).sum(-1)
    torch.testing.assert_close(kl.exact(policy, reference), expected)
    assert (kl.exact(policy, policy) == 0).all()


def test_sums_of_exact_k1_and_k3_over_two_steps_are_the_kl_of_the_sequence() -> None:
    generator = torch.Generator().manual_seed(1)

    def bigram() -> tuple[Tensor, Tensor]:
        first = torch.randn(3, generator=generator, dtype=torch.float64).log_softmax(-1)
        return first, torch.randn(3, 3, generator=generator, dtype=torch.float64).log_softmax(-1)

    (policy_1, policy_2), (reference_1, reference_2) = bigram(), bigram()
    joint, ref_joint = policy_1[:, None] + policy_2, reference_1[:, None] + reference_2
    truth = float((joint.exp() * (joint - ref_joint)).sum())
    u_1, u_2 = policy_1 - reference_1, policy_2 - reference_2
    for estimator in (kl.k1, kl.k3):
        summed = float((joint.exp() * (estimator(u_1)[:, None] + estimator(u_2))).sum())
        assert summed == pytest.approx(truth, abs=1e-12)
    per_step = (
        kl.exact(policy_1, reference_1) + (policy_1.exp() * kl.exact(policy_2, reference_2)).sum()
    )
    assert float(per_step) == pytest.approx(truth, abs=1e-12)
