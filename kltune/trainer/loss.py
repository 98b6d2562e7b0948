"""Log-probs, advantages and a penalty in, the loss of one slot out: the plain single-trial function.

Loss = clipped policy loss + coefficient x KL, the same aggregation (token mean over the
slot's whole batch) for both. Shapes: N sequences, T completion tokens of one slot.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kltune.spec.trial import Penalty
from kltune.trainer import kl


@dataclass(frozen=True, slots=True)
class LossInputs:
    """The rows of one micro-batch of one slot."""

    logprobs_NT: Tensor
    """Of the policy now, with gradient; whatever is at masked tokens is not looked at."""
    old_logprobs_NT: Tensor
    """Of the policy at rollout."""
    ref_logprobs_NT: Tensor
    advantage_N: Tensor
    mask_NT: Tensor


@dataclass(frozen=True, slots=True)
class LossRule:
    """What does not change within a step of a slot."""

    penalty: Penalty | None
    """None, or paid in the reward: no KL in the loss."""
    coefficient: float
    """In advantage units per nat; 0 where no KL is in the loss."""
    clip_ratio: float
    total_tokens: int
    """Valid tokens of the slot's whole batch: the denominator of every micro-batch."""


@dataclass(frozen=True, slots=True)
class LossTerms:
    """Sums over the micro-batch, already divided by the slot's total tokens; they add up over micro-batches."""

    loss: Tensor
    policy: float
    kl: float
    """Coefficient x KL."""
    clipped_tokens: int


def slot_loss(inputs: LossInputs, rule: LossRule) -> LossTerms:
    """PPO's clipped surrogate against the behaviour policy (1707.06347) plus the KL penalty."""
    mask_NT = inputs.mask_NT
    log_ratio_NT = (inputs.logprobs_NT - inputs.old_logprobs_NT).where(mask_NT, 0.0)
    ratio_NT = log_ratio_NT.exp()
    advantage_N1 = inputs.advantage_N[:, None]
    clipped_NT = ratio_NT.clamp(1 - rule.clip_ratio, 1 + rule.clip_ratio)
    gain_NT = torch.minimum(ratio_NT * advantage_N1, clipped_NT * advantage_N1)
    policy = -gain_NT.where(mask_NT, 0.0).sum() / rule.total_tokens
    is_clipped_NT = (clipped_NT * advantage_N1 < ratio_NT * advantage_N1) & mask_NT
    clipped_tokens = int(is_clipped_NT.sum())
    if rule.penalty is None or rule.penalty.in_reward or rule.coefficient == 0.0:
        return LossTerms(policy, float(policy.detach()), 0.0, clipped_tokens)
    # Masked before the estimator: behind it, a masked overflow would be a gradient of 0 x inf.
    now_NT, ref_NT = (x.where(mask_NT, 0.0) for x in (inputs.logprobs_NT, inputs.ref_logprobs_NT))
    kl_NT = kl.loss_term(rule.penalty, now_NT, ref_NT)
    penalty = rule.coefficient * kl_NT.sum() / rule.total_tokens
    return LossTerms(
        policy + penalty, float(policy.detach()), float(penalty.detach()), clipped_tokens
    )
