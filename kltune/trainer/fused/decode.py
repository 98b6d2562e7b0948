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
from kltune.trainer.fused.elementwise import gated, rms_norm
from kltune.trainer.fused.forward import DOWN, GATE_UP, OUTPUT, QKV, angles, forward
from kltune.trainer.fused.linear import Linears
from kltune.trainer.fused.packing import find_prompts, pack


class Decoder:
    """The rows of one slot, one position after another."""

    def __init__(
        self, blocks: Blocks, linears: Linears, prompts: PaddedPrompts, length: int
    ) -> None:
        """Read ``prompts``, one row per completion, for completions of up to ``length`` tokens."""
        self._blocks, self._linears = blocks, linears
        places = (QKV, OUTPUT, GATE_UP, DOWN)
        self._plain = [[linears.plain(i, p) for p in places] for i in range(len(blocks.layers))]
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
            places_S = torch.arange(self._start + length, device=states.device)
            sees = (places_S < self._next_n[:, None]) | (places_S >= self._start)
            self._sees = sees[:, None, None]

    def advance(self, token: Tensor) -> None:
        """Read one more token of every row."""
        blocks = self._blocks
        place = self._start + self._done
        states = F.embedding(token, blocks.embedding_VD)
        cos, sin = angles(blocks, self._next_n)
        half = blocks.head_width // 2
        sin = torch.cat([-sin[:, :half], sin[:, half:]], dim=-1)
        turn = cos[:, None], sin[:, None]
        for index in range(len(blocks.layers)):
            states = self._layer(index, states, turn, place)
        self._done += 1
        self._next_n = self._next_n + 1
        self.states = rms_norm(states, blocks.last_norm, blocks.epsilon)

    def _layer(self, index: int, states: Tensor, turn: tuple[Tensor, Tensor], place: int) -> Tensor:
        """A layer for one position: few and small operations, since each costs its start here."""
        blocks, layer = self._blocks, self._blocks.layers[index]
        num_heads, num_kv = blocks.num_heads, blocks.num_kv_heads
        normed = rms_norm(states, layer.before_attention, blocks.epsilon)
        heads = self._linear(index, QKV, normed).view(len(states), -1, blocks.head_width)
        query, key = heads[:, :num_heads], heads[:, num_heads : num_heads + num_kv]
        if layer.query_norm is not None and layer.key_norm is not None:
            query = rms_norm(query, layer.query_norm, blocks.epsilon)
            key = rms_norm(key, layer.key_norm, blocks.epsilon)
            turned = torch.cat([query, key], dim=1)
        else:
            turned = heads[:, : num_heads + num_kv]
        swapped = turned.roll(blocks.head_width // 2, -1)
        turned = torch.addcmul(turned * turn[0], swapped, turn[1]).to(heads.dtype)
        keys, values = self._cache[index]
        keys[:, :, place] = turned[:, num_heads:]
        values[:, :, place] = heads[:, num_heads + num_kv :]
        seen = self._attend(turned[:, :num_heads], keys, values, place + 1)
        states = self._add(index, OUTPUT, states, seen)
        normed = rms_norm(states, layer.before_mlp, blocks.epsilon)
        return self._add(index, DOWN, states, gated(self._linear(index, GATE_UP, normed)))

    def _attend(self, query: Tensor, keys: Tensor, values: Tensor, used: int) -> Tensor:
        """``[n, H, d]`` queries over the keys so far to ``[n, H x d]``; heads that share keys are the queries of one."""
        num_rows, num_kv, _, width = keys.shape
        sees = None if self._sees is None else self._sees[..., :used]
        seen = F.scaled_dot_product_attention(
            query.view(num_rows, num_kv, -1, width),
            keys[:, :, :used],
            values[:, :, :used],
            attn_mask=sees,
        )
        return seen.flatten(1)

    def _linear(self, index: int, place: int, inputs: Tensor) -> Tensor:
        plain = self._plain[index][place]
        if plain is None:
            return self._linears(index, place, inputs)
        return F.linear(inputs.to(plain[0].dtype), *plain)

    def _add(self, index: int, place: int, states: Tensor, inputs: Tensor) -> Tensor:
        """States plus a layer's output."""
        plain = self._plain[index][place]
        if plain is None or plain[1] is not None or plain[0].dtype != states.dtype:
            return states + self._linear(index, place, inputs)
        return torch.addmm(states, inputs, plain[0].T)

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
