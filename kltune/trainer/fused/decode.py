"""Prompts of one slot in, hidden states position by position out: a KV cache of fixed size, finished rows dropped.

The cache is made once for prompt and completion; each prompt is read once and its keys
are copied to its completions. Shapes: n rows still running, U prompts, L longest prompt,
T completion tokens, J key-value heads, d head width, D width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from kltune.trainer.encode import PaddedPrompts
from kltune.trainer.fused.blocks import Blocks
from kltune.trainer.fused.elementwise import rms_norm
from kltune.trainer.fused.forward import OUTPUT, QKV, angles, forward, mlp, split
from kltune.trainer.fused.linear import Linears
from kltune.trainer.fused.packing import find_prompts, pack


class Decoder:
    """The rows of one slot, one position after another."""

    def __init__(
        self, blocks: Blocks, linears: Linears, prompts: PaddedPrompts, length: int
    ) -> None:
        """Read ``prompts``, one row per completion, for completions of up to ``length`` tokens."""
        self._blocks, self._linears = blocks, linears
        found = find_prompts(prompts)
        num_rows = len(prompts.ids)
        nothing = prompts.ids[:, :1]
        kept: list[Tensor] = []
        packed = pack(found, nothing, torch.ones_like(nothing))
        states = forward(blocks, linears, packed, kept)
        ends = found.ragged.lengths.cumsum(0) - 1
        self.states = found.to_rows(states[ends])
        """Hidden states that predict the next token of each row, ``[n, D]``."""
        self._start, self._done = found.ragged.width, 0
        self._next_n = found.to_rows(found.ragged.lengths)
        self._cache: list[tuple[Tensor, Tensor]] = []
        for keys_values in kept:
            own = found.to_rows(found.ragged.pad(keys_values).transpose(1, 2))
            shape = (num_rows, blocks.num_kv_heads, self._start + length, blocks.head_width)
            keys, values = own.new_empty(shape), own.new_empty(shape)
            keys[:, :, : self._start], values[:, :, : self._start] = own.chunk(2, dim=1)
            self._cache.append((keys, values))
        self._sees: Tensor | None = None
        """``[n, 1, 1, S]``; None: no key is padding."""
        if found.ragged.places is not None:
            columns = torch.arange(self._start + length, device=states.device)
            sees = (columns < self._next_n[:, None]) | (columns >= self._start)
            self._sees = sees[:, None, None]

    def advance(self, token: Tensor) -> None:
        """Read one more token of every row."""
        blocks, linears = self._blocks, self._linears
        place = self._start + self._done
        states = F.embedding(token, blocks.embedding_VD)
        cos_sin = angles(blocks, self._next_n)
        sees = None if self._sees is None else self._sees[..., : place + 1]
        for index, layer in enumerate(blocks.layers):
            normed = rms_norm(states, layer.before_attention, blocks.epsilon)
            query, keys_values = split(blocks, layer, linears(index, QKV, normed), cos_sin)
            keys, values = self._cache[index]
            keys[:, :, place], values[:, :, place] = keys_values.chunk(2, dim=1)
            # Heads that share keys are the queries of one head.
            folded = query.unflatten(1, (blocks.num_kv_heads, -1))
            seen = F.scaled_dot_product_attention(
                folded, keys[:, :, : place + 1], values[:, :, : place + 1], attn_mask=sees
            )
            states = states + linears(index, OUTPUT, seen.flatten(1))
            states = states + mlp(blocks, layer, linears, index, states)
        self._done += 1
        self._next_n = self._next_n + 1
        self.states = rms_norm(states, blocks.last_norm, blocks.epsilon)

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows alone, in this order."""
        self.states = self.states[rows]
        self._next_n = self._next_n[rows]
        if self._sees is not None:
            self._sees = self._sees[rows]
        used = self._start + self._done
        for index, (keys, values) in enumerate(self._cache):
            smaller = []
            for cached in (keys, values):
                kept = cached.new_empty(len(rows), *cached.shape[1:])
                kept[:, :, :used] = cached[rows, :, :used]
                smaller.append(kept)
            self._cache[index] = smaller[0], smaller[1]
