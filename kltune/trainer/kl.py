"""Log-probs in, KL(policy || reference) per token out: value estimators and the penalties made of them.

``log_ratio`` is always policy minus reference (u = log pi - log ref, nats). Estimators
after Schulman (2020), http://joschu.net/blog/kl-approx.html; which gradient each has
where: kl-reference.md §1.2. Nothing is clamped.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kltune.spec.trial import Penalty


def k1(log_ratio: Tensor) -> Tensor:
    """u: unbiased, signed. As a reward it has the sequence-full reverse-KL gradient."""
    return log_ratio


def k2(log_ratio: Tensor) -> Tensor:
    """u^2 / 2: biased in value; as a loss its on-policy gradient is the token-local reverse-KL one."""
    return log_ratio.square() / 2


def k3(log_ratio: Tensor) -> Tensor:
    """exp(-u) - 1 + u: unbiased, never negative; as a loss its gradient is the forward-KL one."""
    return torch.expm1(-log_ratio) + log_ratio


def exact(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """Sum over the vocabulary of p (log p - log q): ``[..., V] -> [...]``, both log-softmaxed.

    A token that the policy never emits (log p = -inf) adds 0, whatever the reference says;
    a NaN stays one.
    """
    probabilities = logprobs.exp()
    terms = probabilities * (logprobs - ref_logprobs)
    return terms.where(probabilities != 0, 0.0).sum(dim=-1)


def loss_term(penalty: Penalty, logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """The differentiable per-token KL of a penalty that sits in the loss.

    Chosen before it is computed: an overflow in an estimator nobody asked for must not
    reach the gradient as 0 x inf. Masked tokens must carry equal log-probs (u = 0).

    Raises:
        ValueError: for a penalty that is paid in the reward.
    """
    log_ratio = logprobs - ref_logprobs
    match penalty:
        case Penalty.K2_LOSS:
            return k2(log_ratio)
        case Penalty.K3_LOSS:
            return k3(log_ratio)
        case Penalty.K1_REWARD:
            raise ValueError("k1-reward is paid in the reward, not in the loss")
