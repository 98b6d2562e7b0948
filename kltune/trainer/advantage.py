"""Proxy scores (and the KL paid in the reward) in, advantages out. One slot at a time.

Shapes: N = P x G sequences, grouped by prompt.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from kltune.trainer.reduce import group_std

STD_EPSILON = 1e-4
"""Added to the group standard deviation, as TRL's GRPOTrainer does."""


@dataclass(frozen=True, slots=True)
class Advantages:
    """What the policy gradient weighs each sequence by."""

    reward_N: Tensor
    """Proxy after the KL paid in the reward."""
    advantage_N: Tensor
    zero_group_frac: float
    """Share of groups whose rewards are all equal: they teach nothing."""


def group_advantages(
    proxy_N: Tensor, kl_seq_N: Tensor, beta_in_reward: float, group_size: int
) -> Advantages:
    """GRPO (2402.03300): (reward - group mean) / (group std with n - 1 + 1e-4).

    The KL enters before the group is normalised: reward = proxy - beta x sum over tokens of k1.
    A group of equal rewards gets exactly zero.
    """
    reward_N = proxy_N - beta_in_reward * kl_seq_N if beta_in_reward else proxy_N
    reward_PG = reward_N.view(-1, group_size)
    std_P = group_std(reward_PG)
    # Rounding of the mean can leave a spread of 1e-8 in a group of equal rewards; look at the rewards.
    equal_P = (reward_PG == reward_PG[:, :1]).all(dim=-1)
    centred_PG = reward_PG - reward_PG.mean(dim=-1, keepdim=True)
    advantage_PG = centred_PG / (std_P[:, None] + STD_EPSILON)
    advantage_PG = advantage_PG.where(~equal_P[:, None], 0.0)
    return Advantages(reward_N, advantage_PG.reshape(-1), float(equal_P.float().mean()))
