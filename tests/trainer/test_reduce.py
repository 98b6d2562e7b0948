"""Averages by hand, and that nothing behind the mask is ever looked at."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from kltune.trainer.reduce import group_std, sequence_mean, sequence_sum, token_max, token_mean

K1 = torch.tensor([[0.1, 0.2, 0.3], [0.4, 9.0, 9.0]], dtype=torch.float64)
MASK = torch.tensor([[True, True, True], [True, False, False]])


def test_token_mean_and_sequence_mean_are_different_numbers_of_the_same_rows() -> None:
    assert float(token_mean(K1, MASK)) == pytest.approx(0.25, rel=1e-12)
    assert float(sequence_mean(K1, MASK)) == pytest.approx(0.5, rel=1e-12)
    torch.testing.assert_close(
        sequence_sum(K1, MASK), torch.tensor([0.6, 0.4], dtype=torch.float64)
    )


def test_statistics_do_not_grow_with_padding() -> None:
    # field case A23
    row = torch.tensor([[0.1, 0.2, 0.7, 0.7]], dtype=torch.float64)
    mask = torch.tensor([[True, True, False, False]])
    assert float(token_mean(row, mask)) == pytest.approx(0.15, rel=1e-12)
    wide, wide_mask = torch.full((1, 200), 0.7, dtype=torch.float64), torch.zeros(1, 200).bool()
    wide[:, :4], wide_mask[:, :4] = row, mask
    assert float(token_mean(wide, wide_mask)) == float(token_mean(row, mask))
    assert float(sequence_mean(wide, wide_mask)) == float(sequence_mean(row, mask))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_masked_reaches_neither_value_nor_gradient(bad: float) -> None:
    poisoned = K1.where(MASK, bad).requires_grad_(True)
    for reduce in (token_mean, sequence_mean, lambda v, m: sequence_sum(v, m).sum()):
        value: Tensor = reduce(poisoned, MASK)
        assert float(value.detach()) == float(reduce(K1, MASK))
        (grad,) = torch.autograd.grad(value, poisoned)
        assert torch.isfinite(grad).all()
        assert (grad[~MASK] == 0).all()


def test_a_nan_at_a_valid_token_is_not_averaged_away() -> None:
    poisoned = K1.clone()
    poisoned[0, 1] = math.nan
    assert math.isnan(float(token_mean(poisoned, MASK)))
    assert math.isnan(float(sequence_mean(poisoned, MASK)))


def test_slots_are_never_mixed() -> None:
    both = torch.stack([K1, 10 * K1])
    masks = torch.stack([MASK, ~MASK])
    for reduce in (token_mean, sequence_mean):
        out = reduce(both, masks)
        assert out.shape == (2,)
        assert float(out[0]) == float(reduce(K1, MASK))
        assert float(out[1]) == float(reduce(10 * K1, ~MASK))


def test_no_valid_token_gives_zero_and_not_a_division_by_zero() -> None:
    assert float(token_mean(K1, torch.zeros_like(MASK))) == 0.0


def test_group_std_is_the_sample_standard_deviation() -> None:
    values = torch.tensor([[1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 2.0]], dtype=torch.float64)
    torch.testing.assert_close(
        group_std(values), torch.tensor([(5 / 3) ** 0.5, 1.0], dtype=torch.float64)
    )


def test_the_largest_token_is_a_valid_one_of_its_own_slot() -> None:
    both = torch.stack([K1, torch.full_like(K1, 7.0)])
    masks = torch.stack([MASK, torch.zeros_like(MASK)])
    assert token_max(both, masks).tolist() == pytest.approx([0.4, 0.0])
    assert float(token_max(-K1, MASK)) == pytest.approx(-0.1)
    assert math.isnan(float(token_max(K1.where(K1 != 0.2, math.nan), MASK)))
