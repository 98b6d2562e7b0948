"""Scores and a KL paid in the reward in, the part of the advantages that the KL makes out. One slot at a time.

Baselines and returns are linear in score and cost; the spread that advantages may be divided by
is held at what it is. So the parts of score and cost add up to the advantages.
Shapes: N = P x G sequences grouped by prompt, T completion tokens.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from kltune.trainer.advantage import (
    STD_EPSILON,
    VARIANCE_EPSILON,
    AdvantageRule,
    advantages,
    ppo_advantages,
    ppo_rewards,
    returns_of,
    scored_std,
)


def cost_part(
    score_N: Tensor, is_scored_N: Tensor, cost_NT: Tensor, mask_NT: Tensor, rule: AdvantageRule
) -> Tensor:
    """What the cost adds to ``advantages`` of the same arguments, ``[N, T]``."""
    nothing_N = torch.zeros_like(score_N)
    rows_NT = mask_NT & is_scored_N[:, None]
    reward_N, total_NC = returns_of(score_N, is_scored_N, cost_NT, mask_NT, rule)
    if rule.algorithm == "reinforce":
        if int(is_scored_N.sum()) < 2:
            return torch.zeros_like(cost_NT)
        _, part_NC = returns_of(nothing_N, is_scored_N, cost_NT, mask_NT, rule)
        shape = mask_NT.shape
        return whitened_part(part_NC.expand(shape), total_NC.expand(shape), rows_NT)
    if rule.algorithm != "grpo":
        return advantages(nothing_N, is_scored_N, cost_NT, mask_NT, rule).advantage_NT
    without_std = replace(rule, algorithm="dr-grpo")
    part_NT = advantages(nothing_N, is_scored_N, cost_NT, mask_NT, without_std).advantage_NT
    scored_PG = is_scored_N.view(-1, rule.group_size)
    spread_P = scored_std(reward_N.view_as(scored_PG), scored_PG) + STD_EPSILON
    return part_NT / spread_P.repeat_interleave(rule.group_size)[:, None]


def ppo_cost_part(
    cost_NT: Tensor, known_NT: Tensor, decay: tuple[float, float], total_NT: Tensor | None
) -> Tensor:
    """What the cost adds to ``ppo_advantages``, the values held; ``total_NT``: the sum that is whitened, if it is.

    ``known_NT``: valid tokens of scored completions; ``decay``: gamma and lambda.
    """
    has_any_N = known_NT.any(dim=-1)
    reward_NT = ppo_rewards(torch.zeros_like(cost_NT[:, 0]), has_any_N, cost_NT, known_NT)
    part_NT, _ = ppo_advantages(reward_NT, torch.zeros_like(cost_NT), known_NT, *decay)
    return part_NT if total_NT is None else whitened_part(part_NT, total_NT, known_NT)


def whitened_part(part_NT: Tensor, total_NT: Tensor, mask_NT: Tensor) -> Tensor:
    """The part of ``whiten(total_NT, mask_NT)`` that ``part_NT`` makes, a summand of the total."""
    valid = total_NT[mask_NT]
    if valid.numel() < 2:
        return part_NT.where(mask_NT, 0.0)
    if bool((valid == valid[0]).all()):
        return torch.zeros_like(part_NT)
    centred_NT = part_NT - part_NT[mask_NT].mean()
    return (centred_NT * torch.rsqrt(valid.var() + VARIANCE_EPSILON)).where(mask_NT, 0.0)
