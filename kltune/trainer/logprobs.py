"""Completions in, log-probs of policy and reference and the exact KL at every token out.

One temperature for both, log-softmax in float32 or wider, chunk by chunk over tokens and
vocabulary (head.py). Masked positions carry 0 in every output: equal log-probs, no KL.
Shapes: K slots, N sequences per slot, L prompt tokens, T completion tokens, M tokens that
go through the head, D hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from kltune.trainer.encode import PaddedPrompts, positions_of
from kltune.trainer.head import Head, HeadRule, token_columns
from kltune.trainer.lora import AdapterStack, AdapterView
from kltune.trainer.model import LoadedModel
from kltune.trainer.rollout import Rollout
from kltune.trainer.stack import TrainableStack, TrainableView


@dataclass(frozen=True, slots=True)
class Completions:
    """Rows to score: some or all of a rollout. K blocks of equal size."""

    prompts: PaddedPrompts
    """``[K x N, L]``."""
    ids_KNT: Tensor
    mask_KNT: Tensor

    @classmethod
    def of(cls, rollout: Rollout) -> Completions:
        """Every row."""
        return cls(rollout.prompts, rollout.ids_KNT, rollout.mask_KNT)

    def take(self, index_KB: Tensor) -> Completions:
        """Rows ``index_KB[k]`` of slot k."""
        num_slots, num_rows, _ = self.ids_KNT.shape

        def of_prompts(tensor: Tensor) -> Tensor:
            return take_rows(tensor.view(num_slots, num_rows, -1), index_KB).flatten(0, 1)

        return Completions(
            PaddedPrompts(of_prompts(self.prompts.ids), of_prompts(self.prompts.mask)),
            take_rows(self.ids_KNT, index_KB),
            take_rows(self.mask_KNT, index_KB),
        )


def take_rows(tensor: Tensor, index_KB: Tensor) -> Tensor:
    """Rows ``index_KB[k]`` of slot k: ``[K, N, ...] -> [K, B, ...]``."""
    slots_K1 = torch.arange(tensor.shape[0], device=tensor.device)[:, None]
    return tensor[slots_K1, index_KB]


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Per-token numbers of scored rows, ``[K, N, T]``, nats, 0 at masked positions.

    ``policy_KNT`` carries a gradient if the caller's grad mode asks for one; so do the
    columns named in `Scoring.gradients`.
    """

    policy_KNT: Tensor
    """log pi of the sampled token."""
    reference_KNT: Tensor
    """log of the reference's probability of the sampled token."""
    exact_kl_KNT: Tensor
    """KL(policy || reference) of the whole next-token distribution."""
    forward_kl_KNT: Tensor
    """KL(reference || policy) of the same."""
    entropy_KNT: Tensor
    """Entropy of the policy's next-token distribution."""
    top_k_KNT: Tensor | None
    """The part of the exact KL that the policy's most likely tokens make up."""
    in_top_k_KNT: Tensor | None
    """Whether the sampled token is one of these."""

    def each(self, change: Callable[[Tensor], Tensor]) -> Logprobs:
        """Every column changed in the same way."""
        top_k, in_top_k = self.top_k_KNT, self.in_top_k_KNT
        return Logprobs(
            policy_KNT=change(self.policy_KNT),
            reference_KNT=change(self.reference_KNT),
            exact_kl_KNT=change(self.exact_kl_KNT),
            forward_kl_KNT=change(self.forward_kl_KNT),
            entropy_KNT=change(self.entropy_KNT),
            top_k_KNT=None if top_k is None else change(top_k),
            in_top_k_KNT=None if in_top_k is None else change(in_top_k),
        )

    @classmethod
    def join(cls, pieces: Sequence[Logprobs]) -> Logprobs:
        """The rows of all pieces, in order; every piece has the same columns."""

        def joined(tensors: Sequence[Tensor]) -> Tensor:
            return torch.cat(list(tensors), dim=1)

        top_k = [piece.top_k_KNT for piece in pieces if piece.top_k_KNT is not None]
        in_top_k = [piece.in_top_k_KNT for piece in pieces if piece.in_top_k_KNT is not None]
        return cls(
            policy_KNT=joined([piece.policy_KNT for piece in pieces]),
            reference_KNT=joined([piece.reference_KNT for piece in pieces]),
            exact_kl_KNT=joined([piece.exact_kl_KNT for piece in pieces]),
            forward_kl_KNT=joined([piece.forward_kl_KNT for piece in pieces]),
            entropy_KNT=joined([piece.entropy_KNT for piece in pieces]),
            top_k_KNT=joined(top_k) if top_k else None,
            in_top_k_KNT=joined(in_top_k) if in_top_k else None,
        )

    def detach(self) -> Logprobs:
        """The same numbers without gradients."""
        return self.each(lambda column: column.detach())


@dataclass(frozen=True, slots=True)
class Scoring:
    """How rows are scored."""

    temperature: float
    only_valid: bool
    """Send only valid tokens through the head. Off: all positions, so that shapes stay fixed."""
    gradients: frozenset[str] = frozenset()
    """Columns that need a gradient besides the policy's log-probs: exact, forward, entropy, top_k."""
    top_k: int | None = None
    """Fill the top-k columns; none: they stay empty."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """What goes through the head: hidden states that predict each completion token, and the head of that model."""

    states_KNTD: Tensor
    head: Head

    def take(self, index_KB: Tensor) -> Hidden:
        """Rows ``index_KB[k]`` of slot k."""
        return Hidden(take_rows(self.states_KNTD, index_KB), self.head)


def hidden_states(
    loaded: LoadedModel, stack: TrainableStack, view: TrainableView | None, completions: Completions
) -> Hidden:
    """One forward over the rows with the weights of ``view``; none: the frozen base.

    The gradient is recorded as the caller's grad mode says.
    """
    prompts = completions.prompts
    if loaded.fused is not None and isinstance(stack, AdapterStack):
        rows = completions.ids_KNT, completions.mask_KNT
        states_KNTD = loaded.fused.states(stack, cast("AdapterView | None", view), prompts, rows)
        return Hidden(states_KNTD, loaded.head_weights())
    ids_RT = completions.ids_KNT.flatten(0, 1)
    mask_RT = completions.mask_KNT.flatten(0, 1).long()
    ids = torch.cat([prompts.ids, ids_RT[:, :-1]], dim=1)
    mask = torch.cat([prompts.mask, mask_RT[:, :-1]], dim=1)
    with stack.use(view):
        hidden = loaded.hidden(ids, mask, positions_of(mask))
        head = loaded.head_weights()
    states_RTD = hidden[:, prompts.ids.shape[1] - 1 :]
    return Hidden(states_RTD.unflatten(0, completions.ids_KNT.shape[:2]), head)


def compare(
    loaded: LoadedModel,
    policy: Hidden,
    reference: Hidden,
    completions: Completions,
    scoring: Scoring,
) -> Logprobs:
    """Both models' hidden states through their heads, token by token."""
    mask_KNT = completions.mask_KNT
    select = mask_KNT if scoring.only_valid else torch.ones_like(mask_KNT)
    rule = HeadRule(scoring.temperature, scoring.top_k, scoring.gradients, loaded.matmul_dtype)
    columns = token_columns(
        policy.states_KNTD[select],
        reference.states_KNTD[select],
        completions.ids_KNT[select],
        policy.head,
        reference.head,
        rule,
    )

    def spread(values_M: Tensor) -> Tensor:
        full = torch.zeros(mask_KNT.shape, dtype=values_M.dtype, device=values_M.device)
        return full.masked_scatter(select, values_M).where(mask_KNT, torch.zeros_like(full))

    return Logprobs(
        policy_KNT=spread(columns.policy_M),
        reference_KNT=spread(columns.reference_M),
        exact_kl_KNT=spread(columns.exact_M),
        forward_kl_KNT=spread(columns.forward_M),
        entropy_KNT=spread(columns.entropy_M),
        top_k_KNT=None if columns.top_k_M is None else spread(columns.top_k_M),
        in_top_k_KNT=None if columns.in_top_k_M is None else spread(columns.in_top_k_M),
    )


def score(
    loaded: LoadedModel,
    stack: TrainableStack,
    view: TrainableView,
    completions: Completions,
    scoring: Scoring,
) -> Logprobs:
    """The policy of ``view`` against the frozen base: two forwards over the same rows.

    The gradient is recorded as the caller's grad mode says.
    """
    with torch.no_grad():
        reference = hidden_states(loaded, stack, None, completions)
    policy = hidden_states(loaded, stack, view, completions)
    return compare(loaded, policy, reference, completions, scoring)
