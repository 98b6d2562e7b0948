"""Estimators and penalties against enumeration in float64 (the toy of four tokens)."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from kltune.spec.trial import Penalty
from kltune.trainer import kl

PI = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
REF = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
U = PI.log() - REF.log()
REVERSE_KL_GRADIENT = torch.tensor([0.3719, -0.0153, -0.1724, -0.1843], dtype=torch.float64)


def grad_logits(function: Callable[[Tensor], Tensor]) -> Tensor:
    """Gradient of ``function(log-softmax(logits))`` at the logits of PI."""
    logits = PI.log().clone().requires_grad_(True)
    (grad,) = torch.autograd.grad(function(torch.log_softmax(logits, -1)), logits)
    return grad


def true_gradient() -> Tensor:
    return grad_logits(lambda logprobs: kl.exact(logprobs, REF.log()))


def test_estimators_of_three_tokens_by_hand() -> None:
    log_ratio = (
        torch.tensor([-1.0, -2.0, -0.5]).double() - torch.tensor([-1.2, -1.5, -0.6]).double()
    )
    assert float(kl.k1(log_ratio).sum()) == pytest.approx(-0.2, rel=1e-6)
    assert float(kl.k1(log_ratio).mean()) == pytest.approx(-0.066667, abs=5e-7)
    assert float(kl.k2(log_ratio).sum()) == pytest.approx(0.15, rel=1e-6)
    assert float(kl.k3(log_ratio).sum()) == pytest.approx(0.172289, abs=5e-7)
    assert float(kl.k3(log_ratio).mean()) == pytest.approx(0.057430, abs=5e-7)


def test_expected_values_and_spreads_of_the_toy() -> None:
    def moments(values: Tensor) -> tuple[float, float]:
        mean = (PI * values).sum()
        return float(mean), float((PI * (values - mean).square()).sum().sqrt())

    assert float(kl.exact(PI.log(), REF.log())) == pytest.approx(0.456435, abs=5e-7)
    for estimator, mean, spread in (
        (kl.k1, 0.456435, 0.9137),
        (kl.k2, 0.521554, 0.4394),
        (kl.k3, 0.456435, 0.4662),
    ):
        assert moments(estimator(U)) == pytest.approx((mean, spread), abs=5e-5)
    assert moments(kl.k2(U))[0] == pytest.approx(0.521554, abs=5e-7)
    assert moments(kl.k3(U))[0] == pytest.approx(0.456435, abs=5e-7)


def test_exact_has_the_known_gradient_of_the_reverse_kl() -> None:
    torch.testing.assert_close(true_gradient(), REVERSE_KL_GRADIENT, atol=5e-5, rtol=0)


def test_k2_in_the_loss_has_the_reverse_kl_gradient() -> None:
    grad = grad_logits(lambda lp: (PI * kl.loss_term(Penalty.K2_LOSS, lp, REF.log())).sum())
    torch.testing.assert_close(grad, true_gradient(), atol=1e-12, rtol=1e-6)


def test_k3_in_the_loss_has_the_forward_kl_gradient() -> None:
    grad = grad_logits(lambda lp: (PI * kl.loss_term(Penalty.K3_LOSS, lp, REF.log())).sum())
    torch.testing.assert_close(grad, PI - REF, atol=1e-12, rtol=1e-6)


def test_k1_in_the_reward_has_the_reverse_kl_gradient() -> None:
    # score-function gradient of a detached penalty that is subtracted from the reward
    grad = grad_logits(lambda lp: (PI * kl.k1(U) * lp).sum())
    torch.testing.assert_close(grad, true_gradient(), atol=1e-12, rtol=1e-6)


def test_a_penalty_of_the_reward_is_refused_in_the_loss() -> None:
    with pytest.raises(ValueError, match="in the reward"):
        kl.loss_term(Penalty.K1_REWARD, PI.log(), REF.log())


def test_an_overflow_in_the_estimator_nobody_asked_for_leaves_the_gradient_finite() -> None:
    logprobs = torch.tensor([-400.0, -1.0], requires_grad=True)  # exp(400) is inf in float32
    reference = torch.tensor([0.0, -1.0])
    (grad,) = torch.autograd.grad(
        kl.loss_term(Penalty.K2_LOSS, logprobs, reference).sum(), logprobs
    )
    torch.testing.assert_close(grad, torch.tensor([-400.0, 0.0]))
    assert math.isinf(float(kl.loss_term(Penalty.K3_LOSS, logprobs, reference).detach().sum()))


def test_exact_is_from_policy_to_reference() -> None:
    policy = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    reference = torch.tensor([0.4, 0.3, 0.3], dtype=torch.float64)
    there = sum(p * math.log(p / q) for p, q in ((0.7, 0.4), (0.2, 0.3), (0.1, 0.3)))
    back = sum(q * math.log(q / p) for p, q in ((0.7, 0.4), (0.2, 0.3), (0.1, 0.3)))
    assert there != pytest.approx(back, rel=0.01)
    assert float(kl.exact(policy.log(), reference.log())) == pytest.approx(there, rel=1e-12)
    assert float(kl.exact(reference.log(), policy.log())) == pytest.approx(back, rel=1e-12)


def test_a_forbidden_token_adds_nothing_to_the_exact_kl() -> None:
    policy = torch.tensor([0.6, 0.4, 0.0], dtype=torch.float64).log()
    reference = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64).log()
    assert float(kl.exact(policy, reference)) == pytest.approx(0.0201355, abs=5e-8)


def test_a_token_that_only_the_policy_emits_makes_the_exact_kl_infinite() -> None:
    policy = torch.tensor([0.5, 0.5], dtype=torch.float64).log()
    assert math.isinf(float(kl.exact(policy, torch.tensor([1.0, 0.0]).double().log())))


def test_a_policy_that_is_not_finite_does_not_pass_for_one_without_kl() -> None:
    policy = torch.full((3,), math.nan)
    assert math.isnan(float(kl.exact(policy, torch.zeros(3))))


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
