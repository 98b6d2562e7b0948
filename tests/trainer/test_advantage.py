"""GRPO advantages by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from kltune.trainer.advantage import group_advantages

NO_KL = torch.zeros(8)


def plain(rewards: Tensor, group_size: int) -> Tensor:
    """The formula, written out: (r - mean) / (std with n - 1 + 1e-4)."""
    out = []
    for group in rewards.tolist():
        mean = sum(group) / group_size
        std = math.sqrt(sum((r - mean) ** 2 for r in group) / (group_size - 1))
        out += [(r - mean) / (std + 1e-4) for r in group]
    return torch.tensor(out)


def test_three_of_eight_correct_gives_the_known_grpo_advantages() -> None:
    proxy = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    advantage = group_advantages(proxy, NO_KL, 0.0, 8).advantage_N
    # The published figures leave the 1e-4 beside the std out.
    torch.testing.assert_close(advantage[:3], torch.full((3,), 1.2076), rtol=3e-4, atol=0)
    torch.testing.assert_close(advantage[3:], torch.full((5,), -0.7246), rtol=3e-4, atol=0)
    torch.testing.assert_close(advantage, plain(proxy.view(1, 8), 8))


def test_each_group_has_its_own_mean_and_spread() -> None:
    proxy = torch.tensor([0.0, 1.0, 5.0, 2.0, 100.0, 101.0, 99.5, 107.0])
    advantage = group_advantages(proxy, NO_KL, 0.0, 4).advantage_N
    torch.testing.assert_close(advantage, plain(proxy.view(2, 4), 4))


def test_equal_rewards_give_zero_and_are_counted() -> None:
    ones = group_advantages(torch.ones(8), NO_KL, 0.0, 4)
    assert (ones.advantage_N == 0).all()
    assert ones.zero_group_frac == 1.0
    half = group_advantages(torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0]), NO_KL, 0.0, 4)
    assert half.zero_group_frac == 0.5


def test_equal_rewards_give_exactly_zero_even_where_their_mean_is_rounded() -> None:
    values = torch.rand(400, generator=torch.Generator().manual_seed(0)) * 10
    groups = values[:, None].expand(-1, 7)
    assert (groups.mean(dim=1) != values).any(), (
        "no value here has a rounded mean: the test sees nothing"
    )
    result = group_advantages(groups.reshape(-1), torch.zeros(2800), 0.0, 7)
    assert (result.advantage_N == 0).all()
    assert result.zero_group_frac == 1.0


def test_the_kl_is_paid_before_the_group_is_normalised() -> None:
    proxy = torch.tensor([1.0, 1.0, 1.0, 1.0])
    kl_seq = torch.tensor([0.0, 1.0, 2.0, 5.0])
    result = group_advantages(proxy, kl_seq, 0.1, 4)
    torch.testing.assert_close(result.reward_N, torch.tensor([1.0, 0.9, 0.8, 0.5]))
    torch.testing.assert_close(result.advantage_N, plain(result.reward_N.view(1, 4), 4))
    assert float(result.advantage_N.std()) == pytest.approx(
        1, abs=1e-3
    )  # 0.1 x KL alone has std 0.2
    assert result.advantage_N[0] > result.advantage_N[3], "more KL is worth less"
    assert result.zero_group_frac == 0.0


def test_without_a_price_the_kl_is_not_looked_at() -> None:
    proxy = torch.tensor([1.0, 2.0, 3.0, 4.0])
    bad = torch.tensor([math.nan, math.inf, -math.inf, 0.0])
    result = group_advantages(proxy, bad, 0.0, 4)
    torch.testing.assert_close(result.reward_N, proxy)
    assert torch.isfinite(result.advantage_N).all()


def test_a_non_finite_kl_in_the_reward_shows() -> None:
    result = group_advantages(torch.ones(4), torch.tensor([math.nan, 0.0, 0.0, 0.0]), 0.1, 4)
    assert not torch.isfinite(result.advantage_N).any()
