"""Packed tokens in, last hidden states out: the blocks of a known family, one layer after another.

Shapes: M tokens, D width, H query heads, J key-value heads, d head width.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from kltune.trainer.fused.attention import attend
from kltune.trainer.fused.blocks import Block, Blocks
from kltune.trainer.fused.elementwise import gated, rms_norm, rotate
from kltune.trainer.fused.linear import Linears
from kltune.trainer.fused.packing import Packed

QKV, OUTPUT, GATE_UP, DOWN = range(4)
"""Places of a layer's joined linear layers."""


def forward(
    blocks: Blocks,
    linears: Linears,
    packed: Packed,
    kept: list[Tensor] | None = None,
    *,
    recompute: bool = False,
) -> Tensor:
    """``[M, D]`` normed last hidden states, in the type of the embedding.

    ``kept``: gets each layer's keys and values of all tokens, ``[M, 2J, d]``.
    ``recompute``: keep a layer's input alone and run it again for its gradient: less memory,
    a forward more.
    """
    states = F.embedding(packed.ids_M, blocks.embedding_VD)
    cos_sin = angles(blocks, packed.positions_M)
    for index in range(len(blocks.layers)):

        def run(inputs: Tensor, index: int = index) -> Tensor:
            return _layer(blocks, linears, packed, (index, cos_sin), inputs, kept)

        if recompute and torch.is_grad_enabled():
            states = cast("Tensor", checkpoint(run, states, use_reentrant=False))
        else:
            states = run(states)
    return rms_norm(states, blocks.last_norm, blocks.epsilon)


def _layer(
    blocks: Blocks,
    linears: Linears,
    packed: Packed,
    where: tuple[int, tuple[Tensor, Tensor]],
    states: Tensor,
    kept: list[Tensor] | None,
) -> Tensor:
    """``where``: the layer's index, and the angles of every token."""
    index, cos_sin = where
    layer = blocks.layers[index]
    normed = rms_norm(states, layer.before_attention, blocks.epsilon)
    query, keys_values = split(blocks, layer, linears(index, QKV, normed), cos_sin)
    if kept is not None:
        kept.append(keys_values)
    seen = attend(query, keys_values, packed).flatten(1)
    states = states + linears(index, OUTPUT, seen)
    return states + mlp(blocks, layer, linears, index, states)


def mlp(blocks: Blocks, layer: Block, linears: Linears, index: int, states: Tensor) -> Tensor:
    """The gated half of a layer, ``[..., D] -> [..., D]``, before it is added."""
    normed = rms_norm(states, layer.before_mlp, blocks.epsilon)
    return linears(index, DOWN, gated(linears(index, GATE_UP, normed)))


def angles(blocks: Blocks, positions_M: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines of each position, ``[M, d]`` float32, by the model's own rule."""
    like = torch.empty(0, device=positions_M.device)
    cos, sin = blocks.angles(like, positions_M[None])
    return cos[0], sin[0]


def split(
    blocks: Blocks, layer: Block, qkv: Tensor, cos_sin: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """Rotated queries ``[M, H, d]`` and rotated keys with values ``[M, 2J, d]``, in the type of ``qkv``."""
    cos, sin = cos_sin
    num_heads, num_kv = blocks.num_heads, blocks.num_kv_heads
    heads = qkv.unflatten(-1, (-1, blocks.head_width))
    if layer.query_norm is None or layer.key_norm is None:
        turned = rotate(heads[..., : num_heads + num_kv, :], cos, sin).to(qkv.dtype)
        query, keys = turned.split((num_heads, num_kv), dim=-2)
    else:
        query, keys, _ = heads.split((num_heads, num_kv, num_kv), dim=-2)
        query = rotate(rms_norm(query, layer.query_norm, blocks.epsilon), cos, sin).to(qkv.dtype)
        keys = rotate(rms_norm(keys, layer.key_norm, blocks.epsilon), cos, sin).to(qkv.dtype)
    values = heads[..., num_heads + num_kv :, :]
    return query, torch.cat([keys, values], dim=-2)
