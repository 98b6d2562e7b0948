"""Aggregations by hand, and that the pieces of an update add up."""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch
from torch import Tensor

from kltune.spec.algorithm import OWN_AGGREGATION, Aggregation
from kltune.trainer.aggregate import token_weights, weighted_sum

AGGREGATIONS: tuple[Aggregation, ...] = get_args(Aggregation)


def rows(*values: list[float]) -> tuple[Tensor, Tensor]:
    width = max(map(len, values))
    padded = [row + [99.0] * (width - len(row)) for row in values]
    lengths = torch.tensor([len(row) for row in values])
    return torch.tensor(padded, dtype=torch.float64), torch.arange(width)[None] < lengths[:, None]


def value(values: Tensor, mask: Tensor, aggregation: Aggregation, longest: int = 4) -> float:
    return float(weighted_sum(values, token_weights(mask, aggregation, longest)))


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("token-mean", 1.8),
        ("seq-mean-token-mean", 3.0),
        ("seq-mean-token-sum", 4.5),
        ("constant", 1.125),
    ],
)
def test_each_mode_has_its_own_number(aggregation: Aggregation, expected: float) -> None:
    # field case A33
    assert value(*rows([1.0] * 4, [5.0]), aggregation) == pytest.approx(expected, rel=1e-12)


def test_every_mode_is_covered_and_every_algorithm_has_one() -> None:
    assert set(OWN_AGGREGATION.values()) <= set(AGGREGATIONS)
    assert len({value(*rows([1.0] * 4, [5.0]), mode) for mode in AGGREGATIONS}) == 4


def test_the_three_means_of_a_kl_are_three_numbers() -> None:
    # field case A22
    k1 = rows([0.1, 0.2, 0.3], [0.4])
    assert value(*k1, "seq-mean-token-sum") == pytest.approx(0.5, rel=1e-12)
    assert value(*k1, "token-mean") == pytest.approx(0.25, rel=1e-12)
    assert value(*k1, "seq-mean-token-mean") == pytest.approx(0.3, rel=1e-12)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_nothing_grows_with_padding(aggregation: Aggregation) -> None:
    # field case A23
    k1 = torch.tensor([[0.1, 0.2, 0.7, 0.7]], dtype=torch.float64)
    mask = torch.tensor([[True, True, False, False]])
    wide, wide_mask = torch.full((1, 200), 0.7).double(), torch.zeros(1, 200).bool()
    wide[:, :4], wide_mask[:, :4] = k1, mask
    assert value(wide, wide_mask, aggregation) == value(k1, mask, aggregation)
    if aggregation == "token-mean":
        assert value(k1, mask, aggregation) == pytest.approx(0.15, rel=1e-12)


@pytest.mark.parametrize("aggregation", ["token-mean", "seq-mean-token-mean"])
def test_a_masked_completion_leaves_numerator_and_denominator(aggregation: Aggregation) -> None:
    # field case A30: 30 tokens, 5 of them masked
    ones, mask = rows(*[[1.0] * 5] * 6)
    mask[5] = False
    assert value(ones, mask, aggregation) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_weights_are_zero_behind_the_mask_and_the_mask_is_left_alone(
    aggregation: Aggregation,
) -> None:
    _, mask = rows([1.0] * 3, [1.0] * 5)
    before = mask.clone()
    weights = token_weights(mask, aggregation, 5)
    assert (weights[~mask] == 0).all()
    assert (weights[mask] > 0).all()
    assert torch.equal(mask, before)
    assert mask.sum(dim=1).tolist() == [3, 5]


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_micro_batches_of_an_update_add_up(aggregation: Aggregation, size: int) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(6, 7, generator=generator, dtype=torch.float64)
    lengths = torch.tensor([7, 1, 3, 0, 5, 2])
    mask = torch.arange(7)[None] < lengths[:, None]
    weights = token_weights(mask, aggregation, 7)
    pieces = zip(values.split(size), weights.split(size), strict=True)
    assert sum(float(weighted_sum(v, w)) for v, w in pieces) == pytest.approx(
        float(weighted_sum(values, weights)), rel=1e-12
    )


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_an_update_without_a_valid_token_weighs_nothing(aggregation: Aggregation) -> None:
    assert (token_weights(torch.zeros(2, 3).bool(), aggregation, 3) == 0).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_masked_reaches_neither_value_nor_gradient(bad: float) -> None:
    values, mask = rows([1.0] * 4, [5.0])
    poisoned = values.where(mask, bad).requires_grad_(True)
    total = weighted_sum(poisoned, token_weights(mask, "token-mean", 4))
    assert float(total.detach()) == pytest.approx(1.8, rel=1e-12)
    (grad,) = torch.autograd.grad(total, poisoned)
    assert (grad[~mask] == 0).all()
    assert torch.isfinite(grad).all()


def test_a_nan_at_a_valid_token_is_not_aggregated_away() -> None:
    values, mask = rows([1.0, math.nan], [5.0])
    assert math.isnan(value(values, mask, "token-mean"))


def test_the_sum_keeps_the_precision_of_the_values() -> None:
    _, mask = rows([1.0] * 4, [5.0])
    weights = token_weights(mask, "token-mean", 4)
    for dtype in (torch.float32, torch.float64):
        assert weighted_sum(torch.ones(2, 4, dtype=dtype), weights).dtype is dtype
