"""Prompts, adapters and uniforms in, sampled completions out: our own decode loop with a KV cache.

Sampling is by inverse CDF of the given uniforms, so who else decodes changes nothing.
The prompt is read once per group and its cache repeated. Shapes: K slots, U unique
prompts per slot, G completions per prompt, N = U x G, L prompt tokens, T completion tokens.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Protocol, cast

import torch
from torch import Tensor
from transformers import DynamicCache

from kltune.trainer.draw import sample
from kltune.trainer.encode import PaddedPrompts, positions_of
from kltune.trainer.lora import AdapterStack, AdapterView
from kltune.trainer.model import LoadedModel
from kltune.trainer.stack import TrainableStack, TrainableView

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
    """True up to and including the first stop token, or the one that completes a stop string."""
    sampler_logprobs_KNT: Tensor
    """Of the sampled tokens, by the decode loop itself; 0 where masked."""
    ended_KN: Tensor
    """True where a stop token or a stop string came before the length limit."""

    @property
    def lengths_KN(self) -> Tensor:
        """Valid tokens per completion."""
        return self.mask_KNT.sum(dim=-1)

    def only(self, slot: int, *, compact: bool = False) -> Rollout:
        """The same of one slot; ``compact``: as wide as its own longest completion, as if it had been drawn alone.

        Sums over further columns of zeros are rounded otherwise.
        """
        num_rows, one = self.ids_KNT.shape[1], slice(slot, slot + 1)
        rows = slice(slot * num_rows, (slot + 1) * num_rows)
        used = int(self.lengths_KN[slot].max()) if compact else self.ids_KNT.shape[2]
        return Rollout(
            PaddedPrompts(self.prompts.ids[rows], self.prompts.mask[rows]),
            self.ids_KNT[one, :, :used].contiguous(),
            self.mask_KNT[one, :, :used].contiguous(),
            self.sampler_logprobs_KNT[one, :, :used].contiguous(),
            self.ended_KN[one],
        )

    def between(self, first: int, end: int) -> Rollout:
        """Rows ``first`` to ``end`` - 1 of every slot, as wide as they are."""
        num_slots, num_rows, _ = self.ids_KNT.shape

        def of_prompts(tensor: Tensor) -> Tensor:
            return tensor.view(num_slots, num_rows, -1)[:, first:end].flatten(0, 1)

        return Rollout(
            PaddedPrompts(of_prompts(self.prompts.ids), of_prompts(self.prompts.mask)),
            self.ids_KNT[:, first:end],
            self.mask_KNT[:, first:end],
            self.sampler_logprobs_KNT[:, first:end],
            self.ended_KN[:, first:end],
        )


class Decoder(Protocol):
    """Rows that are read one position after another."""

    states: Tensor
    """Hidden states that predict the next token of each row, ``[rows, D]``."""

    def advance(self, token: Tensor) -> None:
        """Read one more token of every row, ``[rows]``."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows alone, in this order."""
        ...


@torch.no_grad()
def rollout(
    loaded: LoadedModel,
    prompts: PaddedPrompts,
    uniforms_KNT: Tensor,
    sampling: Sampling,
    adapted: tuple[TrainableStack, TrainableView] | None = None,
) -> Rollout:
    """Sample with the weights of a view; ``prompts`` holds K blocks of U unique prompts.

    Without a view: by the frozen base, or, by the model's own forward, with what is in use.

    By our own forward slot after slot, or at fixed shapes, so that a slot's tokens do not
    depend on its neighbours by one bit; else all slots at once by the model's own.
    """
    group = sampling.group_size
    repeated = PaddedPrompts(
        prompts.ids.repeat_interleave(group, 0), prompts.mask.repeat_interleave(group, 0)
    )
    stack, view = adapted or (None, None)
    if loaded.fused is not None and (stack is None or isinstance(stack, AdapterStack)):
        own = stack, cast("AdapterView | None", view)
        drawn = _by_own_forward(loaded, repeated, uniforms_KNT, sampling, own)
    else:
        in_use = nullcontext() if stack is None else stack.use(view)
        with in_use:
            decoder = TransformersDecoder(loaded, prompts, group)
            drawn = draw(loaded, decoder, uniforms_KNT, sampling)
    ids_KNT, mask_KNT, logprobs_KNT, finished_KN = loaded.text_rules.cut(drawn, loaded.pad_id)
    length = sampling.max_new_tokens
    used = int(mask_KNT.any(dim=(0, 1)).sum()) if sampling.compact else length
    return Rollout(
        prompts=repeated,
        ids_KNT=ids_KNT[..., :used].contiguous(),
        mask_KNT=mask_KNT[..., :used].contiguous(),
        sampler_logprobs_KNT=logprobs_KNT[..., :used].contiguous(),
        ended_KN=finished_KN,
    )


Drawn = tuple[Tensor, Tensor, Tensor, Tensor]
"""Ids, mask and log-probs ``[K, N, T]``, and whether a stop token came ``[K, N]``."""


def _by_own_forward(
    loaded: LoadedModel,
    repeated: PaddedPrompts,
    uniforms_KNT: Tensor,
    sampling: Sampling,
    adapted: tuple[AdapterStack | None, AdapterView | None],
) -> Drawn:
    """Slot after slot where rows may be dropped; all slots at once where shapes are fixed (CUDA)."""
    fused, (stack, view) = loaded.fused, adapted
    assert fused is not None, "asked for above"
    if not sampling.compact and stack is not None and view is not None:
        ids = loaded.pad_id, loaded.stop_ids
        return fused.draw_all(stack, view, repeated, uniforms_KNT, (sampling.temperature, ids))
    linears = fused.linears_by_slot(stack, view)
    num_rows = uniforms_KNT.shape[1]
    drawn: list[Drawn] = []
    for slot, uniforms_NT in enumerate(uniforms_KNT):
        rows = slice(slot * num_rows, (slot + 1) * num_rows)
        own = PaddedPrompts(repeated.ids[rows], repeated.mask[rows])
        decoder = fused.decoder(linears(slot), own, sampling.max_new_tokens)
        drawn.append(draw(loaded, decoder, uniforms_NT[None], sampling))
    columns = [torch.cat(column) for column in zip(*drawn, strict=True)]
    return columns[0], columns[1], columns[2], columns[3]


def draw(loaded: LoadedModel, decoder: Decoder, uniforms_KNT: Tensor, sampling: Sampling) -> Drawn:
    """Sample until every row of every slot has ended.

    Every slot keeps the same number of rows throughout, padded by finished ones, so that
    blocks stay equal.
    """
    num_slots, num_rows, length = uniforms_KNT.shape
    device = loaded.device
    ids_KNT = torch.full((num_slots, num_rows, length), loaded.pad_id, device=device)
    logprobs_KNT = torch.zeros((num_slots, num_rows, length), device=device)
    mask_KNT = torch.zeros((num_slots, num_rows, length), dtype=torch.bool, device=device)
    finished_KN = torch.zeros((num_slots, num_rows), dtype=torch.bool, device=device)
    stops = torch.tensor(loaded.stop_ids, device=device)
    slots_K1 = torch.arange(num_slots, device=device)[:, None]
    rows_Kn = torch.arange(num_rows, device=device).expand(num_slots, -1)
    uniforms = uniforms_KNT.flatten(0, 1).to(device)
    for t in range(length):
        logits = loaded.logits(decoder.states, sampling.temperature)
        token, logprob = sample(logits, uniforms[:, t])
        token_Kn, logprob_Kn = token.view(num_slots, -1), logprob.view(num_slots, -1)
        live_Kn = ~finished_KN[slots_K1, rows_Kn]
        ids_KNT[slots_K1, rows_Kn, t] = token_Kn.where(live_Kn, loaded.pad_id)
        logprobs_KNT[slots_K1, rows_Kn, t] = logprob_Kn.where(live_Kn, 0.0)
        mask_KNT[slots_K1, rows_Kn, t] = live_Kn
        finished_KN[slots_K1, rows_Kn] |= torch.isin(token_Kn, stops)
        finished_KN |= loaded.text_rules.ended_KN(ids_KNT, ~finished_KN, t)
        if t == length - 1 or bool(finished_KN.all()):
            break
        if sampling.compact:
            kept = _still_running(finished_KN, rows_Kn)
            if kept is not None:
                rows_Kn, flat = kept
                decoder.keep(flat)
                token, uniforms = token[flat], uniforms[flat]
        decoder.advance(token)
    return ids_KNT, mask_KNT, logprobs_KNT, finished_KN


class TransformersDecoder:
    """Decoding by the model's own forward, with whatever weights are in use; rows of every slot at once."""

    def __init__(self, loaded: LoadedModel, prompts: PaddedPrompts, group: int) -> None:
        """Read each of ``prompts`` once and repeat its cache ``group`` times."""
        self._loaded = loaded
        self._cache = DynamicCache(config=loaded.model.config)
        positions = positions_of(prompts.mask)
        hidden = loaded.hidden(prompts.ids, prompts.mask, positions, self._cache)[:, -1]
        self._cache.batch_repeat_interleave(group)
        self._mask = prompts.mask.repeat_interleave(group, 0)
        self._next_position = (positions[:, -1] + 1).repeat_interleave(group)
        self.states = hidden.repeat_interleave(group, 0)

    def advance(self, token: Tensor) -> None:
        """One position further."""
        loaded = self._loaded
        self._mask = torch.cat([self._mask, self._mask.new_ones(self._mask.shape[0], 1)], dim=1)
        mask = loaded.decode_mask(self._mask)
        hidden = loaded.hidden(token[:, None], mask, self._next_position[:, None], self._cache)
        self._next_position = self._next_position + 1
        self.states = hidden[:, 0]

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows alone."""
        self._cache.batch_select_indices(rows)
        self._mask = self._mask[rows]
        self._next_position = self._next_position[rows]
        self.states = self.states[rows]


def _still_running(finished_KN: Tensor, rows_Kn: Tensor) -> tuple[Tensor, Tensor] | None:
    """The running rows of every slot, padded to equal counts, and their places among ``rows_Kn``; None: not worth it."""
    num_slots, num_kept = rows_Kn.shape
    finished_Kn = finished_KN.gather(1, rows_Kn)
    width = int((~finished_Kn).sum(dim=1).max())
    if width > COMPACT_BELOW * num_kept:
        return None
    # Stable, so that the running rows keep their order.
    keep_Kw = finished_Kn.int().argsort(dim=1, stable=True)[:, :width]
    offsets_K1 = torch.arange(num_slots, device=rows_Kn.device)[:, None] * num_kept
    return rows_Kn.gather(1, keep_Kw), (keep_Kw + offsets_K1).flatten()
