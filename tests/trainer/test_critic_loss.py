"""The critic's loss by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from kltune.trainer.aggregate import token_weights
from kltune.trainer.critic_loss import explained_variance, value_loss

MASK = torch.tensor([[True, True, True], [True, False, False]])
WEIGHT = token_weights(MASK, "token-mean", 3)


def table(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def one(value: float, old: float, target: float, clip: float | None) -> tuple[float, float]:
    values = table([value]).requires_grad_(True)
    loss = value_loss(values, table([old]), table([target]), torch.ones(1, 1).double(), clip)
    (grad,) = torch.autograd.grad(loss, values)
    return float(loss.detach()), float(grad)


def test_it_is_half_the_squared_error_aggregated_by_the_weights() -> None:
    values = table([1.0, 2.0, 3.0], [4.0, 9.0, 9.0])
    returns = table([0.0, 2.0, 5.0], [7.0, 0.0, 0.0])
    loss = value_loss(values, values, returns, WEIGHT, None)
    assert float(loss) == pytest.approx((1 + 0 + 4 + 9) / 2 / 4, rel=1e-12)


@pytest.mark.parametrize(
    ("value", "old", "target", "loss", "grad"),
    [
        (1.0, 0.9, 2.0, 0.5, -1.0),  # within the clip: the plain error
        (1.0, 0.5, 2.0, 0.845, 0.0),  # moved too far towards the target: held at 0.7
        (0.0, 0.5, 2.0, 2.0, -2.0),  # moved away from it: the plain error is the worse
        (3.0, 0.5, 2.0, 0.845, 0.0),
    ],
)
def test_a_value_that_moved_far_counts_by_the_worse_error(
    value: float, old: float, target: float, loss: float, grad: float
) -> None:
    assert one(value, old, target, 0.2) == pytest.approx((loss, grad), rel=1e-9)


def test_without_a_clip_the_old_value_does_not_matter() -> None:
    assert one(3.0, 0.5, 2.0, None) == pytest.approx((0.5, 1.0), rel=1e-12)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e200])
@pytest.mark.parametrize("clip", [None, 0.2])
def test_what_is_masked_reaches_neither_loss_nor_gradient(bad: float, clip: float | None) -> None:
    clean = [table([1.0, 2.0, 3.0], [4.0, 0.0, 0.0]) + shift for shift in (0.0, 0.5, -1.0)]
    expected = value_loss(clean[0], clean[1], clean[2], WEIGHT, clip)
    for which in range(3):
        poisoned = [x.where(MASK, bad) if i == which else x for i, x in enumerate(clean)]
        values = poisoned[0].clone().requires_grad_(True)
        loss = value_loss(values, poisoned[1], poisoned[2], WEIGHT, clip)
        assert float(loss.detach()) == float(expected)
        (grad,) = torch.autograd.grad(loss, values)
        assert torch.isfinite(grad).all()
        assert (grad[~MASK] == 0).all()


def test_explained_variance_is_one_for_the_truth_and_zero_for_the_mean() -> None:
    returns = table([1.0, 2.0, 6.0], [3.0, math.nan, 50.0])
    assert explained_variance(returns, returns, MASK) == 1.0
    assert explained_variance(torch.full_like(returns, 3.0), returns, MASK) == pytest.approx(0.0)
    assert explained_variance(-returns, returns, MASK) == pytest.approx(-3.0)
    half = table([1.5, 2.0, 5.0], [3.0, 0.0, 0.0])  # residuals -.5, 0, 1, 0 of spread 14
    assert explained_variance(half, returns, MASK) == pytest.approx(1 - (1.25 - 0.0625) / 14)


def test_explained_variance_of_equal_returns_is_not_a_number() -> None:
    values = table([1.0, 2.0, 6.0], [3.0, 0.0, 0.0])
    assert math.isnan(explained_variance(values, torch.full((2, 3), 0.1), MASK))
    assert math.isnan(explained_variance(WEIGHT, WEIGHT, torch.zeros(2, 3).bool()))
