"""A transformers model in, its blocks as the forward here needs them out: layers that read the same input joined.

Known families: Llama (SmolLM2, and whatever uses its classes), Mistral, Qwen2, Qwen3; no
sliding window. Whether our forward is the model's own is checked with numbers, not by
the name alone (forward.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
"""``model_type`` of transformers' configurations."""


@dataclass(frozen=True, slots=True)
class Joined:
    """Linear layers that read the same input, as one: a matrix product in place of several."""

    names: tuple[str, ...]
    """Of the layers in the body."""
    weight_OI: Tensor
    """Their weights below each other; each layer's own weight is a view of it."""
    bias_O: Tensor | None
    spans: tuple[slice, ...]
    """Rows of each layer."""


@dataclass(frozen=True, slots=True)
class Block:
    """One layer of the body."""

    before_attention: Tensor
    """Weight of the norm, ``[D]``."""
    qkv: Joined
    query_norm: Tensor | None
    """Of each head (Qwen3)."""
    key_norm: Tensor | None
    output: Joined
    before_mlp: Tensor
    gate_up: Joined
    down: Joined

    @property
    def joined(self) -> tuple[Joined, ...]:
        """Every linear layer."""
        return self.qkv, self.output, self.gate_up, self.down


@dataclass(frozen=True, slots=True)
class Blocks:
    """The body of a model."""

    layers: tuple[Block, ...]
    embedding_VD: Tensor
    last_norm: Tensor
    epsilon: float
    num_heads: int
    num_kv_heads: int
    head_width: int
    angles: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    """The model's own: (anything of the type wanted, positions ``[1, M]``) to cosines and sines ``[1, M, d]``."""

    @property
    def num_parameters(self) -> int:
        """In linear layers of the body."""
        return sum(j.weight_OI.numel() for layer in self.layers for j in layer.joined)


def find_blocks(body: nn.Module, config: Any, *, in_place: bool = True) -> Blocks | None:
    """The blocks of a known family; None for any other model.

    ``in_place``: each layer's weight becomes a view of the joint one, so that nothing is held
    twice and the model's own forward stays what it was. Else the joint ones are copies, and
    the model can still be saved.
    """
    if getattr(config, "model_type", None) not in FAMILIES or not _is_plain(config):
        return None
    body_: Any = body
    layers = tuple(
        _block(f"layers.{i}", layer, in_place=in_place) for i, layer in enumerate(body_.layers)
    )
    return Blocks(
        layers=layers,
        embedding_VD=body_.embed_tokens.weight,
        last_norm=body_.norm.weight,
        epsilon=body_.norm.variance_epsilon,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_width=body_.layers[0].self_attn.head_dim,
        angles=body_.rotary_emb,
    )


def _is_plain(config: Any) -> bool:
    kinds = getattr(config, "layer_types", None)
    if kinds is not None and any(kind != "full_attention" for kind in kinds):
        return False
    if kinds is None and getattr(config, "sliding_window", None) is not None:
        return False
    return config.hidden_act == "silu" and not getattr(config, "attention_dropout", 0.0)


def _block(name: str, layer: Any, *, in_place: bool) -> Block:
    attention, mlp = layer.self_attn, layer.mlp

    def join(part: Any, where: str, *names: str) -> Joined:
        found = [getattr(part, n) for n in names]
        full = tuple(f"{name}.{where}.{n}" for n in names)
        layers = [getattr(linear, "base", linear) for linear in found]
        return _join(full, layers, in_place=in_place)

    norms = [getattr(attention, n, None) for n in ("q_norm", "k_norm")]
    return Block(
        before_attention=layer.input_layernorm.weight,
        qkv=join(attention, "self_attn", "q_proj", "k_proj", "v_proj"),
        query_norm=None if norms[0] is None else norms[0].weight,
        key_norm=None if norms[1] is None else norms[1].weight,
        output=join(attention, "self_attn", "o_proj"),
        before_mlp=layer.post_attention_layernorm.weight,
        gate_up=join(mlp, "mlp", "gate_proj", "up_proj"),
        down=join(mlp, "mlp", "down_proj"),
    )


@torch.no_grad()
def _join(names: tuple[str, ...], layers: list[nn.Linear], *, in_place: bool) -> Joined:
    spans: list[slice] = []
    for layer in layers:
        start = spans[-1].stop if spans else 0
        spans.append(slice(start, start + layer.out_features))
    biases: list[Tensor | None] = [layer.bias for layer in layers]
    bias_O = None
    if any(bias is not None for bias in biases):
        rows = [
            layer.weight.new_zeros(layer.out_features) if bias is None else bias
            for layer, bias in zip(layers, biases, strict=True)
        ]
        bias_O = torch.cat(rows)
    if len(layers) == 1:
        return Joined(names, layers[0].weight, bias_O, tuple(spans))
    weight_OI = torch.cat([layer.weight for layer in layers])
    if in_place:
        for layer, span in zip(layers, spans, strict=True):
            layer.weight.data = weight_OI[span]
    return Joined(names, weight_OI, bias_O, tuple(spans))
