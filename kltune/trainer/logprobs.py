"""Completions in, log-probs of policy and reference and the exact KL at every token out.

One temperature for both, log-softmax in float32, chunk by chunk over tokens, so that no
full logits are kept. Masked positions carry 0 in every output: equal log-probs, no KL.
Shapes: K slots, N sequences per slot, L prompt tokens, T completion tokens, M tokens that
go through the head, D hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from kltune.trainer import kl
from kltune.trainer.encode import PaddedPrompts, positions_of
from kltune.trainer.lora import AdapterStack, AdapterView
from kltune.trainer.model import LoadedModel
from kltune.trainer.rollout import Rollout

CHUNK_ELEMENTS = 16_000_000
"""Logits (tokens x vocabulary) held at once: 64 MB in float32."""


@dataclass(frozen=True, slots=True)
class Completions:
    """Rows to score: some or all of a rollout. K blocks of equal size."""

    prompts: PaddedPrompts
    """``[K x N, L]``."""
    ids_KNT: Tensor
    mask_KNT: Tensor

    @classmethod
    def of(cls, rollout: Rollout, start: int = 0, end: int | None = None) -> Completions:
        """Rows ``start:end`` of every slot."""
        num_slots, num_rows, _ = rollout.ids_KNT.shape
        end = num_rows if end is None else end

        def cut(tensor: Tensor) -> Tensor:
            return tensor.view(num_slots, num_rows, -1)[:, start:end].flatten(0, 1)

        return cls(
            PaddedPrompts(cut(rollout.prompts.ids), cut(rollout.prompts.mask)),
            rollout.ids_KNT[:, start:end],
            rollout.mask_KNT[:, start:end],
        )


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Per-token numbers of scored rows, ``[K, N, T]``, 0 at masked positions."""

    policy_KNT: Tensor
    """log pi of the sampled token; carries the gradient if one was asked for."""
    reference_KNT: Tensor
    """log ref of the sampled token."""
    exact_kl_KNT: Tensor
    """KL(policy || reference) of the whole next-token distribution, nats."""
    entropy_KNT: Tensor
    """Entropy of the policy's next-token distribution, nats."""


@dataclass(frozen=True, slots=True)
class Scoring:
    """How rows are scored."""

    temperature: float
    only_valid: bool
    """Send only valid tokens through the head. Off: all positions, so that shapes stay fixed."""


def score(
    loaded: LoadedModel,
    stack: AdapterStack,
    view: AdapterView,
    completions: Completions,
    scoring: Scoring,
) -> Logprobs:
    """Two forwards over the same rows: reference (adapters off, no gradient), then policy.

    The gradient is recorded as the caller's grad mode says.
    """
    mask_KNT = completions.mask_KNT
    select = mask_KNT if scoring.only_valid else torch.ones_like(mask_KNT)
    with torch.no_grad(), stack.use(None):
        ref_MD = _hidden(loaded, completions)[select.flatten(0, 1)]
    with stack.use(view):
        policy_MD = _hidden(loaded, completions)[select.flatten(0, 1)]
    targets_M = completions.ids_KNT[select]
    columns = _through_head(loaded, policy_MD, ref_MD, targets_M, scoring.temperature)

    def spread(values_M: Tensor) -> Tensor:
        full = torch.zeros(mask_KNT.shape, dtype=values_M.dtype, device=values_M.device)
        return full.masked_scatter(select, values_M).where(mask_KNT, 0.0)

    policy_M, reference_M, exact_M, entropy_M = columns
    return Logprobs(spread(policy_M), spread(reference_M), spread(exact_M), spread(entropy_M))


def _hidden(loaded: LoadedModel, completions: Completions) -> Tensor:
    """Hidden states that predict each completion token: ``[K x N, T, D]``."""
    prompts = completions.prompts
    ids_RT = completions.ids_KNT.flatten(0, 1)
    mask_RT = completions.mask_KNT.flatten(0, 1).long()
    ids = torch.cat([prompts.ids, ids_RT[:, :-1]], dim=1)
    mask = torch.cat([prompts.mask, mask_RT[:, :-1]], dim=1)
    hidden = loaded.hidden(ids, mask, positions_of(mask))
    return hidden[:, prompts.ids.shape[1] - 1 :]


def _through_head(
    loaded: LoadedModel, policy_MD: Tensor, ref_MD: Tensor, targets_M: Tensor, temperature: float
) -> tuple[Tensor, ...]:
    """Log-prob of policy and reference, exact KL and entropy of M tokens."""
    vocabulary = loaded.vocabulary
    chunk = max(1, CHUNK_ELEMENTS // vocabulary)
    starts = range(0, max(1, policy_MD.shape[0]), chunk)

    def columns(policy_mD: Tensor, ref_mD: Tensor, targets_m: Tensor) -> tuple[Tensor, ...]:
        policy_mV = torch.log_softmax(loaded.logits(policy_mD, temperature), dim=-1)
        with torch.no_grad():
            ref_mV = torch.log_softmax(loaded.logits(ref_mD, temperature), dim=-1)
            detached_mV = policy_mV.detach()
            exact_m = kl.exact(detached_mV, ref_mV)
            probabilities_mV = detached_mV.exp()
            entropy_m = -(probabilities_mV * detached_mV).where(probabilities_mV != 0, 0.0).sum(-1)
            ref_m = ref_mV.gather(-1, targets_m[:, None])[:, 0]
        return policy_mV.gather(-1, targets_m[:, None])[:, 0], ref_m, exact_m, entropy_m

    parts: list[tuple[Tensor, ...]] = []
    for start in starts:
        rows = slice(start, start + chunk)
        inputs = (policy_MD[rows], ref_MD[rows], targets_M[rows])
        # With several chunks the backward pass recomputes one chunk's logits at a time.
        recompute = torch.is_grad_enabled() and len(starts) > 1
        parts.append(
            checkpoint(columns, *inputs, use_reentrant=False) if recompute else columns(*inputs)
        )
    return tuple(torch.cat(column) for column in zip(*parts, strict=True))
