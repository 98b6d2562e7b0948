"""Scores and the KL paid in the reward in, advantages per token out. One slot at a time.

Shapes: N = P x G sequences grouped by prompt, T completion tokens; C = 1 where all tokens of a
completion share one return, else T.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kltune.spec.algorithm import Algorithm, Credit
from kltune.trainer.reduce import group_std, sequence_sum

STD_EPSILON = 1e-4
"""Added to the group standard deviation, as TRL's GRPOTrainer does."""

VARIANCE_EPSILON = 1e-8
"""Added to the variance where values are whitened, as verl and TRL's PPO do."""


@dataclass(frozen=True, slots=True)
class AdvantageRule:
    """What does not change within a step of a slot."""

    algorithm: Algorithm
    group_size: int
    credit: Credit
    pays_own_token: bool = True
    """Whether reward-to-go counts a token's own cost; not where the loss holds that part (exact-full)."""


@dataclass(frozen=True, slots=True)
class Advantages:
    """What the policy gradient weighs each token by."""

    reward_N: Tensor
    """Score less the KL cost of the whole completion (its mean under length-mean); 0 where unscored."""
    advantage_NT: Tensor
    """0 at masked tokens and in unscored completions."""
    zero_group_frac: float
    """Share of groups whose rewards are all equal: they teach nothing. Of the groups with a score;
    of the batch, 0 or 1, under reinforce."""


def advantages(
    score_N: Tensor, is_scored_N: Tensor, cost_NT: Tensor, mask_NT: Tensor, rule: AdvantageRule
) -> Advantages:
    """Returns less a baseline (and over a spread), at every token; ``cost_NT`` is price x KL.

    The cost enters before the baseline. grpo (2402.03300): (G - group mean) / (std of the
    group's whole rewards with n - 1 + 1e-4); dr-grpo (2503.20783): G - group mean; rloo
    (2402.14740): G - mean of the group's others; reinforce (2501.03262): whitened over the
    batch's tokens. Only scored completions are compared; fewer than two, or equal ones, get
    exactly zero.

    Raises:
        ValueError: for ppo, whose advantages come from ``ppo_advantages``.
    """
    if rule.algorithm == "ppo":
        raise ValueError("ppo takes its advantages from a critic: ppo_advantages")
    reward_N, return_NC = returns_of(score_N, is_scored_N, cost_NT, mask_NT, rule)
    rows_NT = mask_NT & is_scored_N[:, None]
    if rule.algorithm == "reinforce":
        return _over_batch(return_NC.expand(mask_NT.shape), reward_N, is_scored_N, rows_NT)
    return _over_groups(return_NC, reward_N, is_scored_N, rows_NT, rule)


def returns_of(
    score_N: Tensor, is_scored_N: Tensor, cost_NT: Tensor, mask_NT: Tensor, rule: AdvantageRule
) -> tuple[Tensor, Tensor]:
    """Reward of each completion (0 where unscored), and the return of its tokens, ``[N, C]``; both linear."""
    cost_NT = cost_NT.where(mask_NT, 0.0)
    reward_N = (score_N - _whole_cost(cost_NT, mask_NT, rule.credit)).where(is_scored_N, 0.0)
    if rule.credit == "reward-to-go":
        return reward_N, score_N[:, None] - _cost_to_go(cost_NT, rule.pays_own_token)
    return reward_N, reward_N[:, None]


def ppo_rewards(score_N: Tensor, is_scored_N: Tensor, cost_NT: Tensor, mask_NT: Tensor) -> Tensor:
    """Reward per token, ``[N, T]``: less its KL cost, and the score on the last valid token.

    0 throughout an unscored completion, which must be left out of what is learned from it.
    """
    later_NT = mask_NT.flip(-1).cumsum(dim=-1).flip(-1)  # valid tokens from here on
    is_last_NT = mask_NT & (later_NT == 1)
    reward_NT = score_N[:, None].where(is_last_NT, 0.0) - cost_NT.where(mask_NT, 0.0)
    return reward_NT.where(is_scored_N[:, None], 0.0)


def ppo_advantages(
    reward_NT: Tensor, values_NT: Tensor, mask_NT: Tensor, gamma: float, gae_lambda: float
) -> tuple[Tensor, Tensor]:
    """Generalised advantages (1506.02438) and the returns that the critic learns, both ``[N, T]``.

    Valid tokens come first in a row; the value after the last one is 0, ended or truncated.
    Both are 0 at masked tokens and carry no gradient.
    """
    reward_NT, values_NT = (x.detach().where(mask_NT, 0.0) for x in (reward_NT, values_NT))
    ahead_N = torch.zeros_like(reward_NT[:, 0])
    next_value_N = torch.zeros_like(ahead_N)
    columns: list[Tensor] = []
    for t in reversed(range(mask_NT.shape[1])):
        surprise_N = reward_NT[:, t] + gamma * next_value_N - values_NT[:, t]
        ahead_N = surprise_N + gamma * gae_lambda * ahead_N
        columns.append(ahead_N)
        next_value_N = values_NT[:, t]
    advantage_NT = torch.stack(columns[::-1], dim=1).where(mask_NT, 0.0)
    return advantage_NT, advantage_NT + values_NT


def whiten(values_NT: Tensor, mask_NT: Tensor) -> Tensor:
    """(value - mean) / sqrt(variance with n - 1 + 1e-8) over the valid tokens, 0 at the others.

    Equal values give exactly zero; fewer than two stay as they are.
    """
    valid = values_NT[mask_NT]
    if valid.numel() < 2:
        return values_NT.where(mask_NT, 0.0)
    if bool((valid == valid[0]).all()):
        return torch.zeros_like(values_NT)
    white_NT = (values_NT - valid.mean()) * torch.rsqrt(valid.var() + VARIANCE_EPSILON)
    return white_NT.where(mask_NT, 0.0)


def _whole_cost(cost_NT: Tensor, mask_NT: Tensor, credit: Credit) -> Tensor:
    cost_N = sequence_sum(cost_NT, mask_NT)
    return cost_N / mask_NT.sum(dim=-1).clamp(min=1) if credit == "length-mean" else cost_N


def _cost_to_go(cost_NT: Tensor, pays_own_token: bool) -> Tensor:
    """Sum of the costs from each token on, or from the next one on."""
    to_go_NT = cost_NT.flip(-1).cumsum(dim=-1).flip(-1)
    if pays_own_token:
        return to_go_NT
    return torch.cat([to_go_NT[:, 1:], torch.zeros_like(to_go_NT[:, :1])], dim=1)


def _over_batch(
    return_NT: Tensor, reward_N: Tensor, is_scored_N: Tensor, rows_NT: Tensor
) -> Advantages:
    scored = reward_N[is_scored_N]
    if scored.numel() < 2:
        zero = float(scored.numel() > 0)
        return Advantages(reward_N, torch.zeros_like(return_NT), zero)
    is_equal = bool((scored == scored[0]).all())
    return Advantages(reward_N, whiten(return_NT, rows_NT), float(is_equal))


def _over_groups(
    return_NC: Tensor, reward_N: Tensor, is_scored_N: Tensor, rows_NT: Tensor, rule: AdvantageRule
) -> Advantages:
    scored_PG = is_scored_N.view(-1, rule.group_size)
    return_PGC = return_NC.reshape(*scored_PG.shape, -1)
    scored_PG1 = scored_PG[..., None]
    count_P11 = scored_PG.sum(dim=1)[:, None, None]
    total_P1C = return_PGC.where(scored_PG1, 0.0).sum(dim=1, keepdim=True)
    if rule.algorithm == "rloo":
        others_PGC = (total_P1C - return_PGC) / (count_P11 - 1).clamp(min=1)
        advantage_PGC = return_PGC - others_PGC
    else:
        advantage_PGC = return_PGC - total_P1C / count_P11.clamp(min=1)
    reward_PG = reward_N.view_as(scored_PG)
    if rule.algorithm == "grpo":
        advantage_PGC = (
            advantage_PGC / (scored_std(reward_PG, scored_PG) + STD_EPSILON)[:, None, None]
        )
    # Rounding of the mean can leave a spread of 1e-8 in a group of equal returns; look at the returns.
    # A single scored one is equal to all there are.
    differ_P1C = ~_all_equal(return_PGC, scored_PG1)
    advantage_NC = advantage_PGC.where(differ_P1C, 0.0).reshape(return_NC.shape)
    equal_P = _all_equal(reward_PG[..., None], scored_PG1).flatten()[scored_PG.any(dim=1)]
    return Advantages(
        reward_N=reward_N,
        advantage_NT=advantage_NC.expand(rows_NT.shape).where(rows_NT, 0.0),
        zero_group_frac=float(equal_P.float().mean()) if equal_P.numel() else 0.0,
    )


def _all_equal(values_PGC: Tensor, scored_PG1: Tensor) -> Tensor:
    """Whether the scored values of a group are the same number: ``[P, 1, C]``."""
    first_P11 = scored_PG1.int().argmax(dim=1, keepdim=True)
    first_P1C = values_PGC.gather(1, first_P11.expand(-1, 1, values_PGC.shape[2]))
    return ((values_PGC == first_P1C) | ~scored_PG1).all(dim=1, keepdim=True)


def scored_std(reward_PG: Tensor, scored_PG: Tensor) -> Tensor:
    """Standard deviation of a group's scored rewards with n - 1; 0 for fewer than two."""
    count_P = scored_PG.sum(dim=1)
    mean_P = reward_PG.where(scored_PG, 0.0).sum(dim=1) / count_P.clamp(min=1)
    squares_P = (reward_PG - mean_P[:, None]).where(scored_PG, 0.0).square().sum(dim=1)
    std_P = (squares_P / (count_P - 1).clamp(min=1)).sqrt()
    # A whole group by torch's own: the last bit of an established trial must not move.
    return group_std(reward_PG).where(scored_PG.all(dim=1), std_P)
