"""The same batch in, kltune's loss, gradient, advantages and metrics on it out: its pure functions, in the order of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pytest
import torch
from parity.trl_batch import (
    GROUP,
    MAX_NEW_TOKENS,
    SCORES,
    TEMPERATURE,
    Policies,
    Scores,
    TrlStep,
    completions,
    gradient_of,
    rows,
)
from tiny import tokenizer
from torch import Tensor
from transformers import LlamaForCausalLM

from kltune.spec.algorithm import Aggregation, Algorithm, RewardSpec
from kltune.spec.penalty import Penalty
from kltune.trainer.advantage import AdvantageRule, Advantages, advantages
from kltune.trainer.aggregate import token_weights, weighted_sum
from kltune.trainer.encode import positions_of
from kltune.trainer.head import Head, HeadRule, TokenColumns, token_columns
from kltune.trainer.kl import TokenKL, reward_term
from kltune.trainer.loss import LossInputs, LossRule, slot_loss
from kltune.trainer.shaping import Moments, shape_scores


@dataclass(frozen=True)
class Own:
    """A setting in kltune's words."""

    algorithm: Algorithm = "grpo"
    aggregation: Aggregation = "token-mean"
    importance: Literal["token", "sequence"] = "token"
    penalty: Penalty | None = None
    beta: float = 0.0
    clip_low: float = 0.2
    clip_high: float = 0.2
    clip_max: float | None = None
    entropy_bonus: float = 0.0
    score_clip: float | None = None


@dataclass
class OwnStep:
    """What kltune made of the batch."""

    loss: float
    gradient_P: Tensor
    mask_NT: Tensor
    old_logprobs_NT: Tensor
    ref_logprobs_NT: Tensor
    entropy_NT: Tensor
    paid_kl_NT: Tensor
    """Per token, before the price; 0 where nothing is paid in the reward."""
    advantage_NT: Tensor
    zero_group_frac: float
    kl: float
    """In the loss, before the price."""
    clipped_tokens: int

    def token_mean(self, values_NT: Tensor) -> float:
        weight_NT = token_weights(self.mask_NT, "token-mean", MAX_NEW_TOKENS)
        return float(weighted_sum(values_NT, weight_NT))


@dataclass(frozen=True)
class Batch:
    """Prompts padded on the left, completions on the right."""

    ids_NL: Tensor
    valid_NL: Tensor
    num_new: int

    @property
    def mask_NT(self) -> Tensor:
        return self.valid_NL[:, -self.num_new :]


def batch() -> Batch:
    prompts = [tokenizer()(row["prompt"])["input_ids"] for row in rows()]
    width, num_new = max(map(len, prompts)), max(map(len, completions()))
    ids = torch.zeros(len(prompts), width + num_new, dtype=torch.long)
    valid = torch.zeros_like(ids, dtype=torch.bool)
    for n, (prompt, completion) in enumerate(zip(prompts, completions(), strict=True)):
        row = slice(width - len(prompt), width + len(completion))
        ids[n, row], valid[n, row] = torch.tensor([*prompt, *completion]), True
    return Batch(ids, valid, num_new)


def columns(policy: LlamaForCausalLM, reference: LlamaForCausalLM, given: Batch) -> TokenColumns:
    """Numbers of every completion token, masked ones included, ``[N x T]``."""
    valid = given.valid_NL.long()

    def hidden(model: LlamaForCausalLM) -> tuple[Tensor, Head]:
        out = model.model(
            input_ids=given.ids_NL, attention_mask=valid, position_ids=positions_of(valid)
        )
        states = out.last_hidden_state[:, -given.num_new - 1 : -1]
        return states.flatten(0, 1), Head(model.lm_head.weight, None)

    rule = HeadRule(TEMPERATURE, None, frozenset({"entropy"}), None)
    (states, head), (ref_states, ref_head) = hidden(policy), hidden(reference)
    targets = given.ids_NL[:, -given.num_new :].flatten()
    return token_columns(states, ref_states, targets, head, ref_head, rule)


def token_kl(now: TokenColumns, old_logprobs_NT: Tensor) -> TokenKL:
    def shaped(values_M: Tensor) -> Tensor:
        return values_M.view(old_logprobs_NT.shape)

    return TokenKL(
        logprobs=shaped(now.policy_M),
        old_logprobs=old_logprobs_NT,
        ref_logprobs=shaped(now.reference_M),
        exact=shaped(now.exact_M),
        forward=shaped(now.forward_M),
    )


def pay(own: Own, rollout: TokenKL, mask_NT: Tensor, scores: Scores) -> tuple[Advantages, Tensor]:
    """Scores and the KL paid in the reward to advantages, and that KL per token."""
    proxy_N = torch.tensor([float("nan") if s is None else s for s in scores])
    shaped = shape_scores(proxy_N, RewardSpec(clip=own.score_clip), (0.0, 1.0), Moments())
    paid_NT = torch.zeros(mask_NT.shape)
    if own.penalty is not None and own.penalty.in_reward:
        paid_NT = reward_term(own.penalty, rollout.masked(mask_NT))
    rule = AdvantageRule(own.algorithm, GROUP, "sequence")
    found = advantages(shaped.score_N, shaped.is_scored_N, own.beta * paid_NT, mask_NT, rule)
    return found, paid_NT


def own_step(
    own: Own,
    given: Policies,
    scores: Scores = SCORES,
    micro_batches: Sequence[slice] = (slice(None),),
) -> OwnStep:
    """Rollout by the behaviour policy, then the loss of the policy now, micro-batch by micro-batch."""
    whole = batch()
    mask_NT = whole.mask_NT
    with torch.no_grad():
        then = columns(given.behaviour, given.reference, whole)
    old_NT = then.policy_M.view(mask_NT.shape)
    paid, paid_NT = pay(own, token_kl(then, old_NT), mask_NT, scores)
    weight_NT = token_weights(mask_NT, own.aggregation, MAX_NEW_TOKENS)
    in_loss = own.penalty is not None and own.penalty.in_loss
    rule = LossRule(
        penalty=own.penalty,
        coefficient=own.beta if in_loss else 0.0,
        clip_low=own.clip_low,
        clip_high=own.clip_high,
        clip_max=own.clip_max,
        importance=own.importance,
        entropy_bonus=own.entropy_bonus,
        kl_clip=None,
    )
    given.now.zero_grad()
    loss, kl, clipped, entropies = 0.0, 0.0, 0, []
    for part in micro_batches:
        rows_here = replace(whole, ids_NL=whole.ids_NL[part], valid_NL=whole.valid_NL[part])
        now = columns(given.now, given.reference, rows_here)
        terms = slot_loss(
            LossInputs(
                logprobs_NT=now.policy_M.view(old_NT[part].shape),
                old_logprobs_NT=old_NT[part],
                advantage_NT=paid.advantage_NT[part],
                mask_NT=mask_NT[part],
                weight_NT=weight_NT[part],
                kl=token_kl(now, old_NT[part]) if in_loss else None,
                entropy_NT=now.entropy_M.view(old_NT[part].shape),
            ),
            rule,
        )
        terms.loss.backward()
        loss += float(terms.loss.detach())
        kl += terms.kl / (own.beta or 1.0)
        clipped += terms.clipped_tokens
        entropies.append(now.entropy_M.detach().view(old_NT[part].shape))
    return OwnStep(
        loss=loss,
        gradient_P=gradient_of(given.now),
        mask_NT=mask_NT,
        old_logprobs_NT=old_NT,
        ref_logprobs_NT=then.reference_M.view(mask_NT.shape),
        entropy_NT=torch.cat(entropies),
        paid_kl_NT=paid_NT,
        advantage_NT=paid.advantage_NT,
        zero_group_frac=paid.zero_group_frac,
        kl=kl,
        clipped_tokens=clipped,
    )


def assert_same(theirs: TrlStep, ours: OwnStep) -> None:
    """Advantages, loss and gradient, to 1e-5."""
    assert torch.equal(theirs.inputs["completion_mask"].bool(), ours.mask_NT)
    every_token_N1 = theirs.inputs["advantages"][:, None]
    torch.testing.assert_close(
        ours.advantage_NT,
        every_token_N1.expand_as(ours.mask_NT).where(ours.mask_NT, 0.0),
        rtol=1e-5,
        atol=1e-5,
    )
    # On-policy the loss is a sum of advantages that cancel, so its size is that of its terms.
    size = float(every_token_N1.abs().max())
    assert ours.loss == pytest.approx(theirs.loss, rel=1e-5, abs=1e-6 * size)
    assert_same_gradient(theirs.gradient_P, ours)


def assert_same_gradient(theirs_P: Tensor, ours: OwnStep) -> None:
    """Relative to the gradient's length."""
    distance = torch.linalg.vector_norm(ours.gradient_P - theirs_P)
    assert float(distance / torch.linalg.vector_norm(theirs_P)) <= 1e-5
