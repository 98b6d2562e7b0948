"""A measured rollout in, what each token of each slot is worth out: reward, KL paid in it, advantage.

Shapes: N sequences of one slot, T completion tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kltune.spec.penalty import Penalty
from kltune.trainer import kl
from kltune.trainer.advantage import (
    AdvantageRule,
    Advantages,
    advantages,
    ppo_advantages,
    ppo_rewards,
    whiten,
)
from kltune.trainer.batch import Batch, Credit, Measured
from kltune.trainer.cost_part import cost_part, ppo_cost_part
from kltune.trainer.kl import TokenKL
from kltune.trainer.logprobs import Logprobs
from kltune.trainer.parts import BankParts
from kltune.trainer.prices import Prices, prices


def credits_of(parts: BankParts, batch: Batch, measured: Measured) -> list[Credit]:
    """One per slot; nothing is changed."""
    return [_credit(parts, batch, measured, row) for row in range(len(batch.slots))]


def token_kl(now: Logprobs, old_NT: Tensor, row: int) -> TokenKL:
    """What a penalty may need of one slot."""
    return TokenKL(
        logprobs=now.policy_KNT[row],
        old_logprobs=old_NT,
        ref_logprobs=now.reference_KNT[row],
        exact=now.exact_kl_KNT[row],
        forward=now.forward_kl_KNT[row],
        top_k=None if now.top_k_KNT is None else now.top_k_KNT[row],
        in_top_k=None if now.in_top_k_KNT is None else now.in_top_k_KNT[row],
    )


def _credit(parts: BankParts, batch: Batch, measured: Measured, row: int) -> Credit:
    state, shaped = batch.states[row], batch.shaped[row]
    mask_NT = batch.rollout.mask_KNT[row]
    price = prices(parts.settings, state.spec, state.beta, shaped.factor)
    cost_NT, clipped = _cost(parts, measured, state.spec.penalty, price, mask_NT, row)
    trainer = parts.settings.trainer
    critic = trainer.value_function
    paid_NT = None if price.reward == 0.0 else cost_NT
    if critic is None:
        rule = _advantage_rule(parts, state.spec.penalty)
        worth = advantages(shaped.score_N, shaped.is_scored_N, cost_NT, mask_NT, rule)
        return Credit(worth, None, price, clipped, paid_NT)
    assert measured.values_KNT is not None, "ppo has a critic"
    values_NT = measured.values_KNT[row]
    reward_NT = ppo_rewards(shaped.score_N, shaped.is_scored_N, cost_NT, mask_NT)
    advantage_NT, returns_NT = ppo_advantages(
        reward_NT, values_NT, mask_NT, critic.gamma, critic.gae_lambda
    )
    # A completion that could not be scored teaches neither policy nor critic.
    known_NT = mask_NT & shaped.is_scored_N[:, None]
    if critic.whiten:
        advantage_NT = whiten(advantage_NT, known_NT)
    reward_N = (shaped.score_N - cost_NT.sum(dim=-1)).where(shaped.is_scored_N, 0.0)
    worth = Advantages(reward_N, advantage_NT.where(known_NT, 0.0), zero_group_frac=0.0)
    return Credit(worth, returns_NT.where(known_NT, values_NT), price, clipped, paid_NT)


def paid_part(
    parts: BankParts, batch: Batch, measured: Measured, credit: Credit, row: int
) -> Tensor | None:
    """The part of one slot's advantages that the KL paid in the reward makes, ``[N, T]``; none where none is paid."""
    if credit.cost_NT is None:
        return None
    state, shaped, mask_NT = batch.states[row], batch.shaped[row], batch.rollout.mask_KNT[row]
    score_N, is_scored_N, cost_NT = shaped.score_N, shaped.is_scored_N, credit.cost_NT
    critic = parts.settings.trainer.value_function
    if critic is None:
        rule = _advantage_rule(parts, state.spec.penalty)
        return cost_part(score_N, is_scored_N, cost_NT, mask_NT, rule)
    assert measured.values_KNT is not None, "ppo has a critic"
    reward_NT = ppo_rewards(score_N, is_scored_N, cost_NT, mask_NT)
    total_NT, _ = ppo_advantages(
        reward_NT, measured.values_KNT[row], mask_NT, critic.gamma, critic.gae_lambda
    )
    return ppo_cost_part(
        cost_NT,
        mask_NT & is_scored_N[:, None],
        (critic.gamma, critic.gae_lambda),
        total_NT if critic.whiten else None,
    )


def _advantage_rule(parts: BankParts, penalty: Penalty | None) -> AdvantageRule:
    trainer = parts.settings.trainer
    return AdvantageRule(
        trainer.algorithm,
        trainer.group_size,
        trainer.credit,
        pays_own_token=penalty is not Penalty.EXACT_FULL,
    )


def _cost(
    parts: BankParts,
    measured: Measured,
    penalty: Penalty | None,
    price: Prices,
    mask_NT: Tensor,
    row: int,
) -> tuple[Tensor, int]:
    """Price x per-token KL where it is paid in the reward, and how many tokens met the clip."""
    old_NT = measured.logprobs.policy_KNT[row]
    if penalty is None or price.reward == 0.0:
        return torch.zeros_like(old_NT), 0
    inputs = token_kl(measured.logprobs, old_NT, row).masked(mask_NT)
    paid_NT, is_clipped_NT = kl.clip_term(
        kl.reward_term(penalty, inputs), parts.settings.trainer.kl.clip
    )
    return price.reward * paid_NT, int((is_clipped_NT & mask_NT).sum())
