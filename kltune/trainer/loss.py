"""Log-probs, advantages and a penalty in, the loss of one slot out: the plain single-trial function.

Loss = clipped policy loss + coefficient x KL - bonus x entropy, all three aggregated by the
same weights. Shapes: N sequences, T completion tokens of one slot.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from kltune.spec.penalty import Penalty
from kltune.trainer.aggregate import weighted_sum
from kltune.trainer.kl import TokenKL, clipped_loss_term


@dataclass(frozen=True, slots=True)
class LossInputs:
    """The rows of one micro-batch of one slot; whatever is at masked tokens is not looked at."""

    logprobs_NT: Tensor
    """Of the policy now, with gradient."""
    old_logprobs_NT: Tensor
    """Of the behaviour policy, at rollout."""
    advantage_NT: Tensor
    mask_NT: Tensor
    weight_NT: Tensor
    """These rows of ``token_weights`` over the whole update."""
    kl: TokenKL | None = None
    """Needed where a penalty stands in the loss."""
    entropy_NT: Tensor | None = None
    """Of the policy now, nats, with gradient; needed for a bonus."""


@dataclass(frozen=True, slots=True)
class LossRule:
    """What does not change within a step of a slot."""

    penalty: Penalty | None
    """None, or paid in the reward alone: no KL in the loss."""
    coefficient: float
    """In advantage units per nat; 0 where no KL is in the loss."""
    clip_low: float
    clip_high: float
    """The importance ratio is clipped to 1 - low .. 1 + high on the pessimistic side."""
    clip_max: float | None = None
    """Bound of the ratio where the advantage is negative (1912.09729; TRL's delta)."""
    importance: Literal["token", "sequence"] = "token"
    """Ratio per token, or of the whole completion: then one advantage per completion."""
    entropy_bonus: float = 0.0
    """In advantage units per nat."""
    kl_clip: float | None = None
    """Clip of a token's KL in the loss to +- this many nats."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the loss of a micro-batch was made of, as it was."""

    rows_B: Tensor
    """Which rows, counted within the batch at hand."""
    inputs: LossInputs
    rule: LossRule


@dataclass(frozen=True, slots=True)
class LossTerms:
    """Weighted sums over the micro-batch; they add up over micro-batches."""

    loss: Tensor
    policy: float
    kl: float
    """Coefficient x KL."""
    entropy: float
    """Bonus x entropy; subtracted from the loss."""
    clipped_tokens: int
    kl_clipped_tokens: int
    update_kl: float
    """Sum over valid tokens, unweighted, of ratio - 1 - log ratio: KL(behaviour || policy now), nats."""
    grad_kl_share: float | None = None
    """Share of the KL in the gradient of these rows; none where it was not measured."""
    seen: Seen | None = None
    """Kept for a trace alone."""


def slot_loss(inputs: LossInputs, rule: LossRule) -> LossTerms:
    """PPO's clipped surrogate against the behaviour policy (1707.06347), KL penalty and entropy bonus.

    Raises:
        ValueError: if the rule asks for a KL or an entropy that the inputs lack.
    """
    mask_NT = inputs.mask_NT
    # Masked before the exponential: behind it, a masked overflow would be a gradient of 0 x inf.
    log_ratio_NT = (inputs.logprobs_NT - inputs.old_logprobs_NT).where(mask_NT, 0.0)
    policy, clipped_tokens = _policy_loss(inputs, rule, log_ratio_NT)
    penalty, kl_clipped_tokens = _kl_loss(inputs, rule)
    entropy = _entropy(inputs, rule)
    moved_NT = log_ratio_NT.detach()
    return LossTerms(
        loss=policy + penalty - entropy,
        policy=float(policy.detach()),
        kl=float(penalty.detach()),
        entropy=float(entropy.detach()),
        clipped_tokens=clipped_tokens,
        kl_clipped_tokens=kl_clipped_tokens,
        update_kl=float((torch.expm1(moved_NT) - moved_NT).sum()),
    )


def kl_part(inputs: LossInputs, rule: LossRule, paid_NT: Tensor | None) -> Tensor:
    """What the KL makes of ``slot_loss``: the penalty, and the policy loss of the part of the advantages it paid for.

    ``paid_NT``: that part; none where the reward pays for no KL. The policy loss has two parts only
    where no ratio is clipped, as in the first update of a rollout.
    """
    penalty, _ = _kl_loss(inputs, rule)
    if paid_NT is None:
        return penalty
    ratio_NT = (inputs.logprobs_NT - inputs.old_logprobs_NT).where(inputs.mask_NT, 0.0)
    policy, _ = _policy_loss(replace(inputs, advantage_NT=paid_NT), rule, ratio_NT)
    return policy + penalty


def _policy_loss(inputs: LossInputs, rule: LossRule, log_ratio_NT: Tensor) -> tuple[Tensor, int]:
    advantage_NT = inputs.advantage_NT.where(inputs.mask_NT, 0.0)
    weight_NT = inputs.weight_NT
    ratio_NT = log_ratio_NT.exp()
    if rule.importance == "sequence":
        ratio_NT = log_ratio_NT.sum(dim=-1, keepdim=True).exp().expand_as(log_ratio_NT)
        # Every token now holds its completion's whole gain: T equal shares of it.
        weight_NT = weight_NT / inputs.mask_NT.sum(dim=-1, keepdim=True).clamp(min=1)
    free_NT = ratio_NT * advantage_NT
    clipped_NT = ratio_NT.clamp(1 - rule.clip_low, 1 + rule.clip_high) * advantage_NT
    is_clipped_NT = clipped_NT < free_NT
    bounded_NT = free_NT
    if rule.clip_max is not None:
        bounded_NT = ratio_NT.clamp(max=rule.clip_max) * advantage_NT
        is_clipped_NT = is_clipped_NT | (bounded_NT > free_NT)
    gain_NT = torch.minimum(bounded_NT, clipped_NT)
    # A masked token has an advantage of 0: nothing of it is clipped.
    return -weighted_sum(gain_NT, weight_NT), int(is_clipped_NT.sum())


def _kl_loss(inputs: LossInputs, rule: LossRule) -> tuple[Tensor, int]:
    if rule.penalty is None or not rule.penalty.in_loss or rule.coefficient == 0.0:
        return inputs.logprobs_NT.new_zeros(()), 0
    if inputs.kl is None:
        raise ValueError(f"{rule.penalty.value} stands in the loss: it needs the KL of each token")
    columns = inputs.kl.masked(inputs.mask_NT)
    kl_NT, is_clipped_NT = clipped_loss_term(rule.penalty, columns, rule.kl_clip)
    penalty = rule.coefficient * weighted_sum(kl_NT, inputs.weight_NT)
    return penalty, int(is_clipped_NT.sum())


def _entropy(inputs: LossInputs, rule: LossRule) -> Tensor:
    if rule.entropy_bonus == 0.0:
        return inputs.logprobs_NT.new_zeros(())
    if inputs.entropy_NT is None:
        raise ValueError("an entropy bonus needs the entropy of each token")
    return rule.entropy_bonus * weighted_sum(inputs.entropy_NT, inputs.weight_NT)
