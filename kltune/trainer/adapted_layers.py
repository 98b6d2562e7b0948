"""A decoder body and what the spec asks for in, the linear layers that get adapters out.

By default every linear layer of the blocks: attention and MLP, fused ones as they are. Never the embeddings, the
head, what lies between them and the blocks (OPT's projections), nor routers, where a small change sends tokens to
other experts. Experts that transformers keeps as one stacked tensor are no linear layers and get none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from torch import nn
from transformers.pytorch_utils import Conv1D

from kltune.errors import SpecError
from kltune.spec.model import AdaptersSpec

ROUTERS: Final = frozenset({"router", "gate", "shared_expert_gate"})
"""Last part of the name of a linear layer that chooses or weighs experts."""


def is_transposed(layer: nn.Module) -> bool:
    """Whether the weight is stored inputs x outputs (GPT-2's Conv1D)."""
    return isinstance(layer, Conv1D)


def size_of(layer: nn.Module) -> tuple[int, int] | None:
    """Inputs and outputs of a linear layer; None for any other module."""
    if isinstance(layer, nn.Linear):
        return layer.in_features, layer.out_features
    if isinstance(layer, Conv1D):
        return layer.weight.shape[0], layer.weight.shape[1]
    return None


def linear_layers(body: nn.Module) -> list[tuple[str, nn.Module]]:
    """Every linear layer of a body, in module order."""
    return [(name, module) for name, module in body.named_modules() if size_of(module) is not None]


def find_targets(
    body: nn.Module, chosen: AdaptersSpec | None = None
) -> list[tuple[str, nn.Module]]:
    """The linear layers that get adapters, in module order.

    A name in ``chosen`` means every layer whose full name ends in it, part by part (``q_proj``,
    ``self_attn.q_proj``, ``layers.0.mlp.up_proj``), as PEFT's target_modules does.

    Raises:
        SpecError: the body has no linear layer, a name means none, or none is left.
    """
    layers = linear_layers(body)
    if not layers:
        raise SpecError(
            f"model.base: {type(body).__name__} has no linear layer (torch.nn.Linear, GPT-2's Conv1D) that could "
            "carry an adapter"
        )
    include = () if chosen is None else chosen.include
    exclude = () if chosen is None else chosen.exclude
    for field, names in (("include", include), ("exclude", exclude)):
        _refuse_unknown(field, names, layers)
    kept = [
        (name, layer)
        for name, layer in layers
        if (any(_means(given, name) for given in include) if include else _is_default(name, body))
        and not any(_means(given, name) for given in exclude)
    ]
    if not kept:
        raise SpecError(
            f"model.adapters: no layer is left to train; there are: {', '.join(_short(layers))}"
        )
    return kept


def _is_default(name: str, body: nn.Module) -> bool:
    *parents, last = name.split(".")
    if last in ROUTERS and (last != "gate" or _has_experts(body.get_submodule(".".join(parents)))):
        return False
    is_in_block = any(part.isdigit() for part in parents)
    return is_in_block or not any(isinstance(m, nn.ModuleList) for m in body.modules())


def _has_experts(parent: nn.Module) -> bool:
    return any("expert" in name for name, _ in parent.named_children())


def _means(given: str, name: str) -> bool:
    return name == given or name.endswith(f".{given}")


def _refuse_unknown(
    field: str, names: Sequence[str], layers: Sequence[tuple[str, nn.Module]]
) -> None:
    unknown = [g for g in names if not any(_means(g, name) for name, _ in layers)]
    if unknown:
        raise SpecError(
            f"model.adapters.{field}: no linear layer is called {', '.join(unknown)}; there are: "
            f"{', '.join(_short(layers))}"
        )


def _short(layers: Sequence[tuple[str, nn.Module]]) -> list[str]:
    """Last parts of the names, each once, in module order."""
    return list(dict.fromkeys(name.rpartition(".")[2] for name, _ in layers))
