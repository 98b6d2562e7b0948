"""Prompts of K slots in, completions out, with shapes that never change: one captured graph per position on CUDA.

A position is one function of fixed buffers: head, draw, bookkeeping, blocks, cache. On CUDA
it is captured once per shape and replayed, so that a position costs one launch; elsewhere
it is called, which is how tests run it. Slots share the products with the base
(:class:`kltune.trainer.fused.linear.BranchLinears`). Refilling a slot changes buffers'
contents alone. Shapes: K slots, N rows per slot, R = K x N rows, L prompt tokens, T
completion tokens, S = L + T keys, J key-value heads, d head width, D width.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from accelerate.utils.memory import should_reduce_batch_size
from torch import Tensor

from kltune.trainer.draw import sample
from kltune.trainer.encode import PaddedPrompts
from kltune.trainer.fused.blocks import Blocks
from kltune.trainer.fused.elementwise import rms_norm
from kltune.trainer.fused.forward import OUTPUT, QKV, angles, forward, mlp, split
from kltune.trainer.fused.linear import BranchLinears, Linears, Pairs
from kltune.trainer.fused.packing import find_prompts, pack

BUCKET = 64
"""Keys are looked at up to a multiple of this: one graph per multiple."""
ENDED_EVERY = 16
"""Positions between looks at whether every row has ended, each of which waits for the device."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What one set of buffers is for."""

    num_slots: int
    num_rows: int
    """Per slot."""
    prompt: int
    """L."""
    length: int
    """T."""
    temperature: float
    rank: int
    scale: float
    """alpha / rank of the adapters."""


class StaticDecoder:
    """Buffers and graphs of one shape."""

    def __init__(
        self,
        blocks: Blocks,
        linears: BranchLinears,
        head: tuple[Tensor, Tensor | None],
        shape: Shape,
        ids: tuple[int, tuple[int, ...]],
    ) -> None:
        """``linears``: of ``shape.num_slots`` slots, whose buffers stay; ``ids``: padding and stop tokens."""
        self._blocks, self._linears, self._shape = blocks, linears, shape
        self._head_VD, self._head_bias_V = head
        self._pad_id, stops = ids
        device, rows = blocks.embedding_VD.device, shape.num_slots * shape.num_rows
        keys = shape.prompt + shape.length
        self._stops = torch.tensor(stops, device=device)
        self._states = blocks.embedding_VD.new_zeros(rows, blocks.embedding_VD.shape[1])
        cache = (rows, blocks.num_kv_heads, keys, blocks.head_width)
        # Zeros: what a masked key holds is multiplied by 0, which must not be NaN.
        like = torch.zeros(cache, dtype=linears.dtype, device=device)
        self._cache = [(torch.zeros_like(like), torch.zeros_like(like)) for _ in blocks.layers]
        self._sees = torch.zeros(rows, 1, 1, keys, dtype=torch.bool, device=device)
        self._next = torch.zeros(rows, dtype=torch.long, device=device)
        self._step = torch.zeros(1, dtype=torch.long, device=device)
        self._place = torch.zeros(1, dtype=torch.long, device=device)
        self._uniforms = torch.zeros(rows, shape.length, device=device)
        self._ids = torch.zeros(rows, shape.length, dtype=torch.long, device=device)
        self._mask = torch.zeros(rows, shape.length, dtype=torch.bool, device=device)
        self._logprobs = torch.zeros(rows, shape.length, device=device)
        self._finished = torch.zeros(rows, dtype=torch.bool, device=device)
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._may_capture = device.type == "cuda"
        # One pool for all: they run one after another, and what outlives a replay is in the buffers.
        self._pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    @torch.no_grad()
    def draw(
        self,
        prompts: PaddedPrompts,
        adapters: Sequence[Sequence[Pairs]],
        linears: Callable[[int], Linears],
        uniforms_RT: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Ids, mask and log-probs ``[K, N, T]`` and whether a row ended ``[K, N]``; copies.

        ``prompts``: one row per completion. ``adapters``: of all slots, by layer and place.
        ``linears``: of one slot alone, for reading its prompts.
        """
        shape = self._shape
        self._linears.refresh(adapters)
        if self._may_capture:
            self._capture()
        self._read(prompts, linears, uniforms_RT)
        for t in range(shape.length):
            self._advance(self._bucket(t))
            last = t == shape.length - 1
            if not last and t % ENDED_EVERY == ENDED_EVERY - 1 and bool(self._finished.all()):
                break
        parts = (self._ids, self._mask, self._logprobs, self._finished)
        split_up = [part.unflatten(0, (shape.num_slots, shape.num_rows)).clone() for part in parts]
        return split_up[0], split_up[1], split_up[2], split_up[3]

    def _bucket(self, t: int) -> int:
        """Keys that position ``t`` looks at."""
        needed, every = self._shape.prompt + t + 1, self._shape.prompt + self._shape.length
        return min(every, -(-needed // BUCKET) * BUCKET)

    def _read(
        self, prompts: PaddedPrompts, linears: Callable[[int], Linears], uniforms_RT: Tensor
    ) -> None:
        """Fill the buffers: prompts through the blocks, slot after slot."""
        shape, start = self._shape, self._shape.prompt
        for tensor in (self._step, self._mask, self._logprobs, self._finished, self._sees):
            tensor.zero_()
        # What a diverged trial left behind may be NaN, and 0 x NaN is NaN.
        for keys, values in self._cache:
            keys.zero_()
            values.zero_()
        self._ids.fill_(self._pad_id)
        self._uniforms.copy_(uniforms_RT)
        self._place.fill_(start)
        columns = torch.arange(start, device=self._states.device)
        for slot in range(shape.num_slots):
            rows = slice(slot * shape.num_rows, (slot + 1) * shape.num_rows)
            found = find_prompts(PaddedPrompts(prompts.ids[rows], prompts.mask[rows]))
            nothing = prompts.ids[rows, :1]
            kept: list[Tensor] = []
            packed = pack(found, nothing, torch.ones_like(nothing))
            states = forward(self._blocks, linears(slot), packed, kept)
            ends = found.ragged.lengths.cumsum(0) - 1
            self._states[rows] = found.to_rows(states[ends])
            lengths = found.to_rows(found.ragged.lengths)
            self._next[rows] = lengths
            self._sees[rows, 0, 0, :start] = columns < lengths[:, None]
            for cache, keys_values in zip(self._cache, kept, strict=True):
                own = found.to_rows(found.ragged.pad(keys_values).transpose(1, 2))
                for to, part in zip(cache, own.chunk(2, dim=1), strict=True):
                    to[rows, :, : found.ragged.width] = part

    def _advance(self, num_keys: int) -> None:
        if num_keys in self._graphs:
            self._graphs[num_keys].replay()
        else:
            self._one_position(num_keys)

    def _one_position(self, num_keys: int) -> None:
        """Draw a token of every row from the states and read it: in place, without a look at any value."""
        blocks, linears, temperature = self._blocks, self._linears, self._shape.temperature
        logits = F.linear(self._states.to(self._head_VD.dtype), self._head_VD, self._head_bias_V)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        uniform = self._uniforms.index_select(1, self._step)[:, 0]
        token, logprob = sample(logits if temperature == 1 else logits / temperature, uniform)
        is_live = ~self._finished
        self._ids.index_copy_(1, self._step, token.where(is_live, self._pad_id)[:, None])
        logprob = logprob.to(self._logprobs.dtype).where(is_live, 0.0)
        self._logprobs.index_copy_(1, self._step, logprob[:, None])
        self._mask.index_copy_(1, self._step, is_live[:, None])
        self._finished.logical_or_((token[:, None] == self._stops).any(-1))
        self._sees.index_fill_(3, self._place, True)

        states = F.embedding(token, blocks.embedding_VD)
        cos_sin = angles(blocks, self._next)
        sees = self._sees[..., :num_keys]
        for index, layer in enumerate(blocks.layers):
            normed = rms_norm(states, layer.before_attention, blocks.epsilon)
            query, keys_values = split(blocks, layer, linears(index, QKV, normed), cos_sin)
            keys, values = self._cache[index]
            new_keys, new_values = keys_values.unsqueeze(2).chunk(2, dim=1)
            keys.index_copy_(2, self._place, new_keys)
            values.index_copy_(2, self._place, new_values)
            folded = query.unflatten(1, (blocks.num_kv_heads, -1))
            seen = F.scaled_dot_product_attention(
                folded, keys[:, :, :num_keys], values[:, :, :num_keys], attn_mask=sees
            )
            states = states + linears(index, OUTPUT, seen.flatten(1))
            states = states + mlp(blocks, layer, linears, index, states)
        self._states.copy_(rms_norm(states, blocks.last_norm, blocks.epsilon))
        self._next.add_(1)
        self._step.add_(1)
        self._place.add_(1)

    def _capture(self) -> None:
        """Capture a graph for every number of keys that has none; the buffers hold nothing of use then."""
        buckets = {self._bucket(t) for t in range(self._shape.length)} - self._graphs.keys()
        try:
            for num_keys in sorted(buckets):
                self._graphs[num_keys] = self._captured(num_keys)
        except RuntimeError as error:
            if should_reduce_batch_size(error):
                raise
            self._may_capture = False
            torch.cuda.synchronize()
            reason = str(error).splitlines()[0]
            warnings.warn(
                f"CUDA graphs can't be captured ({reason}); tokens are drawn without them, slower",
                RuntimeWarning,
                stacklevel=2,
            )

    def _captured(self, num_keys: int) -> torch.cuda.CUDAGraph:
        self._rewind(num_keys)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries make their workspaces before the capture
            self._one_position(num_keys)
            self._rewind(num_keys)
            self._one_position(num_keys)
        torch.cuda.current_stream().wait_stream(side)
        self._rewind(num_keys)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            self._one_position(num_keys)
        return graph

    def _rewind(self, num_keys: int) -> None:
        """Indices within range, every number finite."""
        self._states.zero_()
        self._sees.fill_(True)
        self._next.fill_(num_keys - 1)
        self._step.zero_()
        self._place.fill_(self._shape.prompt)
