"""The expected gradient of every penalty against enumeration in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from toy import PI, REF, UNIFORM, U, columns

from kltune.spec.penalty import Penalty
from kltune.trainer import kl
from kltune.trainer.kl import TokenKL

R = REF / PI
TRUE = (0.3719, -0.0153, -0.1724, -0.1843)
REVERSE = [  # in the loss, with the reverse-KL gradient
    Penalty.K2_LOSS, Penalty.WK1_LOSS, Penalty.WK3_LOSS, Penalty.K3PLUS_LOSS, Penalty.EXACT_LOSS,
    Penalty.EXACT_FULL, Penalty.TOPK_LOSS,
]  # fmt: skip


def grad_logits(function: Callable[[Tensor], Tensor], policy: Tensor = PI) -> Tensor:
    """Gradient of ``function(log-softmax(logits))`` at the logits of the policy."""
    logits = policy.log().clone().requires_grad_(True)
    (grad,) = torch.autograd.grad(function(torch.log_softmax(logits, -1)), logits)
    return grad


def enumerated(score_weight: Tensor, sampled: Tensor = PI, policy: Tensor = PI) -> Tensor:
    """E_sampled[f s] with s = e_y - policy, written out."""
    return sampled * score_weight - (sampled * score_weight).sum() * policy


def expected_gradient(penalty: Penalty, sampled: Tensor, policy: Tensor, ref: Tensor) -> Tensor:
    """Of a penalty as the trainer takes it: by autograd in the loss, by the score function in the reward."""

    def loss(logprobs: Tensor) -> Tensor:
        inputs = columns(logprobs, sampled.log(), ref.log())
        if penalty.in_loss:
            return (sampled * kl.loss_term(penalty, inputs)).sum()
        return (sampled * kl.reward_term(penalty, inputs) * logprobs).sum()

    return grad_logits(loss, policy)


def assert_row(
    grad: Tensor, score_weight: Tensor, row: tuple[float, ...], sampled: Tensor = PI
) -> None:
    torch.testing.assert_close(grad, enumerated(score_weight, sampled), atol=1e-12, rtol=1e-9)
    torch.testing.assert_close(grad, torch.tensor(row).double(), atol=1e-4, rtol=0)


def cos_and_ratio(grad: Tensor) -> tuple[float, float]:
    true = enumerated(U)
    return float(grad @ true / grad.norm() / true.norm()), float(grad.norm() / true.norm())


@pytest.mark.parametrize(
    ("shift", "true", "k2_bias", "spreads"),
    [(0.1, 0.005, 0.0025, (20, 1.42, 1.42)), (1.0, 0.5, 0.25, (2, 1.73, 1.70))],
)
def test_the_published_table_of_bias_and_spread(
    shift: float, true: float, k2_bias: float, spreads: tuple[float, float, float]
) -> None:
    x = torch.linspace(-14, 14, 40_001, dtype=torch.float64)
    density = torch.exp(-x.square() / 2)
    density /= density.sum()
    log_ratio = ((x - shift).square() - x.square()) / 2
    estimators = (kl.k1, kl.k2, kl.k3)
    for estimator, bias, spread in zip(estimators, (0.0, k2_bias, 0.0), spreads, strict=True):
        values = estimator(log_ratio)
        mean = (density * values).sum()
        sd = (density * (values - mean).square()).sum().sqrt()
        assert float(mean) / true - 1 == pytest.approx(bias, abs=1e-4)
        assert float(sd) / true == pytest.approx(spread, abs=6e-3)


@pytest.mark.parametrize("penalty", [Penalty.K1_REWARD, *REVERSE])
def test_these_have_the_gradient_of_the_reverse_kl(penalty: Penalty) -> None:
    grad = expected_gradient(penalty, PI, PI, REF)
    assert_row(grad, U, TRUE)
    assert cos_and_ratio(grad) == pytest.approx((1, 1), abs=1e-9)


@pytest.mark.parametrize(
    ("penalty", "score_weight", "row", "cosine", "ratio"),
    [
        (Penalty.K3_LOSS, 1 - R, (0.3, 0.1, -0.1, -0.3), 0.908, 0.99),
        (Penalty.FORWARD_LOSS, 1 - R, (0.3, 0.1, -0.1, -0.3), 0.908, 0.99),
        (Penalty.JEFFREYS_LOSS, 1 - R + U, (0.6719, 0.0847, -0.2724, -0.4843), None, None),
        (Penalty.ABS_LOSS, U.sign(), (0.24, 0.18, -0.28, -0.14), 0.824, 0.96),
        (Penalty.K3_REWARD, R - 1 + U, (0.0719, -0.1153, -0.0724, 0.1157), 0.227, 0.43),
        (Penalty.K2_REWARD, U**2 / 2, (0.1757, -0.1318, -0.0879, 0.0439), 0.688, 0.54),
        (Penalty.ABS_REWARD, U.abs(), (0.1962, -0.1471, -0.0981, 0.0490), 0.688, 0.60),
    ],
)
def test_these_have_another_gradient(
    penalty: Penalty, score_weight: Tensor, row: tuple[float, ...], cosine: float, ratio: float
) -> None:
    grad = expected_gradient(penalty, PI, PI, REF)
    assert_row(grad, score_weight, row)
    if cosine is not None:
        assert cos_and_ratio(grad) == pytest.approx((cosine, ratio), abs=5.1e-3)


@pytest.mark.parametrize("penalty", [Penalty.K1_LOSS, Penalty.EXACT_REWARD])
def test_these_have_no_gradient_at_one_token(penalty: Penalty) -> None:
    assert_row(expected_gradient(penalty, PI, PI, REF), torch.zeros(4).double(), (0, 0, 0, 0))


def test_a_differentiable_weight_on_k2_and_a_doubled_weight_on_k1_are_wrong() -> None:
    grad = grad_logits(lambda lp: (PI * (lp - lp.detach()).exp() * kl.k2(lp - REF.log())).sum())
    assert_row(grad, U + U**2 / 2, (0.5477, -0.1471, -0.2603, -0.1403))
    assert cos_and_ratio(grad) == pytest.approx((0.962, 1.42), abs=5e-3)
    grad = grad_logits(lambda lp: (PI * lp.exp() * kl.k1(lp - REF.log())).sum())
    assert_row(grad, PI * (U + 1), (0.1705, -0.0320, -0.0819, -0.0567))
    assert cos_and_ratio(grad) == pytest.approx((0.983, 0.44), abs=5e-3)
    assert float((PI * PI * kl.k1(U)).sum()) == pytest.approx(0.2282, abs=5e-5)


@pytest.mark.parametrize("penalty", REVERSE)
def test_off_policy_these_still_have_the_gradient_of_the_reverse_kl(penalty: Penalty) -> None:
    torch.testing.assert_close(
        expected_gradient(penalty, UNIFORM, PI, REF), enumerated(U), atol=1e-12, rtol=1e-9
    )


def test_off_policy_without_a_weight_the_estimators_go_astray() -> None:
    plain_k2 = grad_logits(lambda lp: (UNIFORM * kl.k2(lp - REF.log())).sum())
    k1_reward = grad_logits(lambda lp: (UNIFORM * kl.k1(U) * lp).sum())
    for grad in (plain_k2, k1_reward):
        assert_row(grad, U, (0.3466, 0.1014, -0.1014, -0.3466), UNIFORM)
        assert cos_and_ratio(grad) == pytest.approx((0.909, 1.14), abs=5e-3)
    # k3-loss is GRPO's: without a weight off policy too
    grad = expected_gradient(Penalty.K3_LOSS, UNIFORM, PI, REF)
    assert_row(grad, 1 - R, (0.4292, 0.2646, -0.0042, -0.6896), UNIFORM)
    assert cos_and_ratio(grad) == pytest.approx((0.738, 1.90), abs=5e-3)
    grad = grad_logits(lambda lp: (UNIFORM * kl.k3(U) * lp).sum())
    assert_row(grad, R - 1 + U, (-0.0826, -0.1632, -0.0972, 0.3430), UNIFORM)
    assert cos_and_ratio(grad) == pytest.approx((-0.414, 0.89), abs=5e-3)


def test_the_binary_example() -> None:
    policy = torch.tensor([0.8, 0.2], dtype=torch.float64)
    ref = torch.tensor([0.5, 0.5], dtype=torch.float64)
    assert float(kl.exact(policy.log(), ref.log())) == pytest.approx(0.1927, abs=5e-5)
    assert float(kl.forward(policy.log(), ref.log())) == pytest.approx(0.2231, abs=5e-5)

    def per_probability(penalty: Penalty) -> float:
        return float(expected_gradient(penalty, policy, policy, ref)[0]) / (0.8 * 0.2)

    for penalty in REVERSE:
        assert per_probability(penalty) == pytest.approx(1.386, abs=5e-4)
    assert per_probability(Penalty.K3_LOSS) == pytest.approx(1.875, abs=5e-4)
    assert per_probability(Penalty.K1_LOSS) == pytest.approx(0, abs=1e-12)
    wrong = per_probability(Penalty.K3_REWARD) / per_probability(Penalty.K1_REWARD)
    assert wrong == pytest.approx(-0.35, abs=5e-3)


def test_the_tail_of_top_k_carries_the_moving_mass() -> None:
    policy = torch.tensor([0.8, 0.2], dtype=torch.float64)
    ref = torch.tensor([0.5, 0.5], dtype=torch.float64).log()

    def with_tail(tail: Callable[[TokenKL], Tensor]) -> float:
        def loss(logprobs: Tensor) -> Tensor:
            return (policy * tail(columns(logprobs, policy.log(), ref))).sum()

        return float(grad_logits(loss, policy)[0]) / (0.8 * 0.2)

    def without_score(inputs: TokenKL) -> Tensor:
        assert inputs.top_k is not None
        assert inputs.in_top_k is not None
        return inputs.top_k + kl.k2(inputs.logprobs - ref).where(~inputs.in_top_k, 0.0)

    assert with_tail(without_score) == pytest.approx(2.386, abs=5e-4)
    right = with_tail(lambda inputs: kl.loss_term(Penalty.TOPK_LOSS, inputs))
    assert right == pytest.approx(1.386, abs=5e-4)
