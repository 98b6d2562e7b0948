"""Prompts, adapters and uniforms in, sampled completions out: our own decode loop with a KV cache.

Sampling is by inverse CDF of the given uniforms, so who else decodes changes nothing.
The prompt is read once per group and its cache repeated. Shapes: K slots, U unique
prompts per slot, G completions per prompt, N = U x G, L prompt tokens, T completion tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from kltune.trainer.encode import PaddedPrompts, positions_of
from kltune.trainer.model import LoadedModel

COMPACT_BELOW = 0.75
"""Finished rows are dropped once the rows still running are fewer than this share."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How completions are drawn."""

    group_size: int
    max_new_tokens: int
    temperature: float
    compact: bool
    """Drop finished rows and trim to the longest completion (CPU). Off: fixed shapes, so that a slot's
    numbers do not depend on its neighbours by one bit."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """Completions of every slot; rows of a slot are grouped by prompt."""

    prompts: PaddedPrompts
    """``[K x N, L]``."""
    ids_KNT: Tensor
    """Pad ids after the first stop token."""
    mask_KNT: Tensor
    """True up to and including the first stop token."""
    sampler_logprobs_KNT: Tensor
    """Of the sampled tokens, by the decode loop itself; 0 where masked."""
    ended_KN: Tensor
    """True where a stop token came before the length limit."""

    @property
    def lengths_KN(self) -> Tensor:
        """Valid tokens per completion."""
        return self.mask_KNT.sum(dim=-1)


@dataclass(slots=True)
class _Decoding:
    """What shrinks together when finished rows are dropped."""

    cache: Any
    mask: Tensor
    next_position: Tensor
    rows: Tensor
    """``[K, n]``: which completions of each slot are still decoded."""
    uniforms: Tensor
    """``[K x n, T]``."""


@torch.no_grad()
def rollout(
    loaded: LoadedModel, prompts: PaddedPrompts, uniforms_KNT: Tensor, sampling: Sampling
) -> Rollout:
    """Sample with whatever adapters are in use; ``prompts`` holds K blocks of U unique prompts.

    Decoded as long as some row of some slot runs. Every slot keeps the same number of
    rows throughout, padded by finished ones, so that blocks stay equal.
    """
    num_slots, num_rows, _ = uniforms_KNT.shape
    length = sampling.max_new_tokens
    device = loaded.device
    ids_KNT = torch.full((num_slots, num_rows, length), loaded.pad_id, device=device)
    logprobs_KNT = torch.zeros((num_slots, num_rows, length), device=device)
    mask_KNT = torch.zeros((num_slots, num_rows, length), dtype=torch.bool, device=device)
    finished_KN = torch.zeros((num_slots, num_rows), dtype=torch.bool, device=device)
    stops = torch.tensor(loaded.stop_ids, device=device)
    slots_K1 = torch.arange(num_slots, device=device)[:, None]

    hidden, state = _prefill(loaded, prompts, uniforms_KNT, sampling)
    for t in range(length):
        logits = loaded.logits(hidden, sampling.temperature)
        token, logprob = sample(logits, state.uniforms[:, t])
        token_Kn, logprob_Kn = token.view(num_slots, -1), logprob.view(num_slots, -1)
        live_Kn = ~finished_KN[slots_K1, state.rows]
        ids_KNT[slots_K1, state.rows, t] = token_Kn.where(live_Kn, loaded.pad_id)
        logprobs_KNT[slots_K1, state.rows, t] = logprob_Kn.where(live_Kn, 0.0)
        mask_KNT[slots_K1, state.rows, t] = live_Kn
        finished_KN[slots_K1, state.rows] |= torch.isin(token_Kn, stops)
        if t == length - 1 or bool(finished_KN.all()):
            break
        if sampling.compact:
            token = _drop_finished(state, finished_KN, token)
        hidden = _advance(loaded, state, token)

    used = int(mask_KNT.any(dim=(0, 1)).sum()) if sampling.compact else length
    group = sampling.group_size
    return Rollout(
        prompts=PaddedPrompts(
            prompts.ids.repeat_interleave(group, 0), prompts.mask.repeat_interleave(group, 0)
        ),
        ids_KNT=ids_KNT[..., :used].contiguous(),
        mask_KNT=mask_KNT[..., :used].contiguous(),
        sampler_logprobs_KNT=logprobs_KNT[..., :used].contiguous(),
        ended_KN=finished_KN,
    )


def sample(logits: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Inverse CDF: the first token whose cumulative probability exceeds u.

    ``[rows, V]`` logits at the sampling temperature, ``[rows]`` uniforms in [0, 1) to
    ``[rows]`` ids and their log-probs. A row that is not finite yields some valid id and
    a non-finite log-prob: the step that uses it says so.
    """
    logprobs = torch.log_softmax(logits, dim=-1)
    # float64: over a large vocabulary a float32 running sum is off by more than a rare token's probability.
    cumulative = logprobs.exp().cumsum(dim=-1, dtype=torch.float64)
    threshold = uniforms.to(torch.float64)[:, None] * cumulative[:, -1:]
    token = torch.searchsorted(cumulative, threshold, right=True).clamp(max=logits.shape[-1] - 1)
    return token[:, 0], logprobs.gather(-1, token)[:, 0]


def _prefill(
    loaded: LoadedModel, prompts: PaddedPrompts, uniforms_KNT: Tensor, sampling: Sampling
) -> tuple[Tensor, _Decoding]:
    """Read each unique prompt once; return the last hidden state of every row and the decoding state."""
    num_slots, num_rows, _ = uniforms_KNT.shape
    cache = DynamicCache(config=loaded.model.config)
    positions = positions_of(prompts.mask)
    hidden = loaded.hidden(prompts.ids, prompts.mask, positions, cache)[:, -1]
    cache.batch_repeat_interleave(sampling.group_size)
    rows = torch.arange(num_rows, device=loaded.device).expand(num_slots, -1)
    state = _Decoding(
        cache=cache,
        mask=prompts.mask.repeat_interleave(sampling.group_size, 0),
        next_position=(positions[:, -1] + 1).repeat_interleave(sampling.group_size),
        rows=rows,
        uniforms=uniforms_KNT.flatten(0, 1).to(loaded.device),
    )
    return hidden.repeat_interleave(sampling.group_size, 0), state


def _advance(loaded: LoadedModel, state: _Decoding, token: Tensor) -> Tensor:
    """One position further for the rows in ``state``: ``[rows] -> [rows, D]``."""
    state.mask = torch.cat([state.mask, state.mask.new_ones(state.mask.shape[0], 1)], dim=1)
    # A ready 4-D mask spares transformers from building one per position; a sliding window needs its own.
    mask = state.mask[:, None, None].bool() if loaded.key_mask_suffices else state.mask
    hidden = loaded.hidden(token[:, None], mask, state.next_position[:, None], state.cache)
    state.next_position = state.next_position + 1
    return hidden[:, 0]


def _drop_finished(state: _Decoding, finished_KN: Tensor, token: Tensor) -> Tensor:
    """Keep the running rows of every slot, padded to equal counts; return the tokens of the rows kept."""
    num_slots, num_kept = state.rows.shape
    finished_Kn = finished_KN.gather(1, state.rows)
    width = int((~finished_Kn).sum(dim=1).max())
    if width > COMPACT_BELOW * num_kept:
        return token
    # Stable, so that the running rows keep their order.
    keep_Kw = finished_Kn.int().argsort(dim=1, stable=True)[:, :width]
    offsets_K1 = torch.arange(num_slots, device=token.device)[:, None] * num_kept
    flat = (keep_Kw + offsets_K1).flatten()
    state.cache.batch_select_indices(flat)
    state.mask = state.mask[flat]
    state.next_position = state.next_position[flat]
    state.uniforms = state.uniforms[flat]
    state.rows = state.rows.gather(1, keep_Kw)
    return token[flat]
