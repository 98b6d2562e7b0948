"""Log-probs in, KL(policy || reference) per token out: value estimators and the penalties made of them.

``log_ratio`` is always policy minus reference (u = log pi - log ref, nats). Estimators
after Schulman (2020), http://joschu.net/blog/kl-approx.html; which gradient each has
where: kl-reference.md §1.2. Nothing is clamped but by ``clip_term``, on request.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kltune.spec.penalty import Penalty


def k1(log_ratio: Tensor) -> Tensor:
    """u: unbiased, signed. As a reward it has the sequence-full reverse-KL gradient."""
    return log_ratio


def k2(log_ratio: Tensor) -> Tensor:
    """u^2 / 2: biased in value; as a loss its on-policy gradient is the token-local reverse-KL one."""
    return log_ratio.square() / 2


def k3(log_ratio: Tensor) -> Tensor:
    """exp(-u) - 1 + u: unbiased, never negative; as a loss its gradient is the forward-KL one."""
    return torch.expm1(-log_ratio) + log_ratio


def absolute(log_ratio: Tensor) -> Tensor:
    """|u|: at least the KL; as a loss it is a total-variation penalty."""
    return log_ratio.abs()


def exact(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """KL(policy || reference): the sum over the vocabulary of p (log p - log q), ``[..., V] -> [...]``.

    Both log-softmaxed. A token that the policy never emits (log p = -inf) adds 0 to value
    and gradient, whatever the reference says; a NaN stays one.
    """
    probabilities = logprobs.exp()
    # Selected before the product: behind it, 0 x inf would be the gradient.
    log_ratio = (logprobs - ref_logprobs).where(probabilities != 0, 0.0)
    return (probabilities * log_ratio).sum(dim=-1)


def forward(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """KL(reference || policy): the same the other way round, ``[..., V] -> [...]``."""
    return exact(ref_logprobs, logprobs)


def jeffreys(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """Reverse plus forward KL (Jeffreys' divergence, not halved), ``[..., V] -> [...]``."""
    return exact(logprobs, ref_logprobs) + forward(logprobs, ref_logprobs)


@dataclass(frozen=True, slots=True)
class TokenKL:
    """What a penalty may need, per token, ``[..., T]``, in nats."""

    logprobs: Tensor
    """Of the sampled tokens under the policy now, with gradient."""
    old_logprobs: Tensor
    """Under the behaviour policy."""
    ref_logprobs: Tensor
    exact: Tensor
    """KL(policy || reference) over the vocabulary, policy now."""
    forward: Tensor
    """KL(reference || policy) over the vocabulary, policy now."""
    top_k: Tensor | None = None
    """Sum of p (log p - log q) over the policy's likeliest tokens."""
    in_top_k: Tensor | None = None
    """Whether the sampled token is one of them."""

    def masked(self, mask: Tensor) -> TokenKL:
        """Equal log-probs and a KL of 0 where the mask is false, without a gradient.

        To be done before an estimator: behind it, a masked overflow would be a gradient of 0 x inf.
        """
        return TokenKL(
            logprobs=self.logprobs.where(mask, 0.0),
            old_logprobs=self.old_logprobs.where(mask, 0.0),
            ref_logprobs=self.ref_logprobs.where(mask, 0.0),
            exact=self.exact.where(mask, 0.0),
            forward=self.forward.where(mask, 0.0),
            top_k=None if self.top_k is None else self.top_k.where(mask, 0.0),
            in_top_k=self.in_top_k,
        )


def reward_term(penalty: Penalty, inputs: TokenKL) -> Tensor:
    """The per-token KL that a penalty pays in the reward, without a gradient.

    Of the policy at rollout: ``exact`` must have been computed then.

    Raises:
        ValueError: for a penalty that pays nothing in the reward.
    """
    log_ratio = (inputs.old_logprobs - inputs.ref_logprobs).detach()
    match penalty:
        case Penalty.K1_REWARD:
            return k1(log_ratio)
        case Penalty.EXACT_FULL | Penalty.EXACT_REWARD:
            return inputs.exact.detach()
        case Penalty.ABS_REWARD:
            return absolute(log_ratio)
        case Penalty.K2_REWARD:
            return k2(log_ratio)
        case Penalty.K3_REWARD:
            return k3(log_ratio)
        case _:
            raise ValueError(f"{penalty.value} is paid in the loss, not in the reward")


def loss_term(penalty: Penalty, inputs: TokenKL) -> Tensor:
    """The differentiable per-token KL of the part of a penalty that sits in the loss.

    Chosen before it is computed: an overflow in an estimator nobody asked for must not
    reach the gradient as 0 x inf. Masked tokens must have gone through ``TokenKL.masked``.

    Raises:
        ValueError: for a penalty that has no part in the loss, or without its top-k columns.
    """
    match penalty:
        case Penalty.EXACT_LOSS | Penalty.EXACT_FULL:
            return inputs.exact
        case Penalty.FORWARD_LOSS:
            return inputs.forward
        case Penalty.JEFFREYS_LOSS:
            return inputs.exact + inputs.forward
        case Penalty.TOPK_LOSS:
            return _top_k_term(inputs)
        case _:
            return _sampled_term(penalty, inputs)


def _sampled_term(penalty: Penalty, inputs: TokenKL) -> Tensor:
    log_ratio = inputs.logprobs - inputs.ref_logprobs
    match penalty:
        case Penalty.K3_LOSS:
            return k3(log_ratio)
        case Penalty.K1_LOSS:
            return k1(log_ratio)
        case Penalty.ABS_LOSS:
            return absolute(log_ratio)
        case Penalty.K2_LOSS:
            return _weight(inputs).detach() * k2(log_ratio)
        case Penalty.WK1_LOSS:
            return _weight(inputs) * k1(log_ratio)
        case Penalty.WK3_LOSS:
            return _weight(inputs) * k3(log_ratio)
        case Penalty.K3PLUS_LOSS:
            carrier = _weight(inputs).detach() * k2(log_ratio)
            return k3(log_ratio).detach() + (carrier - carrier.detach())
        case _:
            raise ValueError(f"{penalty.value} is paid in the reward, not in the loss")


def _weight(inputs: TokenKL) -> Tensor:
    """Importance weight of a token against the behaviour policy, with gradient."""
    return (inputs.logprobs - inputs.old_logprobs).exp()


def _top_k_term(inputs: TokenKL) -> Tensor:
    """Exact over the likeliest tokens, sampled in the tail.

    The tail's gradient is (u + 1) s: u s alone would miss that the tail's mass moves.
    """
    if inputs.top_k is None or inputs.in_top_k is None:
        raise ValueError("topk-loss needs the top-k columns")
    tail = inputs.masked(~inputs.in_top_k)
    return inputs.top_k + _sampled_term(Penalty.WK1_LOSS, tail)


def clip_term(values: Tensor, limit: float | None) -> tuple[Tensor, Tensor]:
    """Values clipped to +- limit nats (no gradient outside), and which ones were; a NaN stays one."""
    if limit is None:
        return values, torch.zeros_like(values, dtype=torch.bool)
    return values.clamp(-limit, limit), values.detach().abs() > limit


def clipped_loss_term(
    penalty: Penalty, inputs: TokenKL, limit: float | None
) -> tuple[Tensor, Tensor]:
    """``loss_term`` clipped as ``clip_term`` does, also where the estimator overflows.

    Behind an infinite estimator the clip's zero gradient would be 0 x inf, so a clipped
    token's inputs are made equal before the estimator.
    """
    if limit is None:
        return clip_term(loss_term(penalty, inputs), limit)
    with torch.no_grad():
        clipped, is_clipped = clip_term(loss_term(penalty, inputs), limit)
    inside = loss_term(penalty, inputs.masked(~is_clipped))
    return clipped.where(is_clipped, inside), is_clipped
