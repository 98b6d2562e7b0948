"""A model and a PEFT folder in, the model with that LoRA adapter merged into its weights out: the start of every trial.

The reference is what training starts from, so the adapter is part of it: merged once, W + scale B A in float32,
the policy's own adapters begin at zero on top and the KL at step 0 is 0. Names after PEFT 0.21
(utils/save_and_load.py), scale and patterns after its tuners/lora/layer.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from kltune.errors import SpecError
from kltune.trainer.adapted_layers import is_transposed, size_of

CONFIG: Final = "adapter_config.json"
WEIGHTS: Final = "adapter_model.safetensors"
_PREFIX: Final = "base_model.model."
_MERGE_ADVICE: Final = "merge it with peft and give the merged model as model.base"
_NAME: Final = re.compile(r"(?P<layer>.+)\.lora_(?P<kind>[AB])(?:\.default)?\.weight")


@dataclass(frozen=True, slots=True)
class StartLayer:
    """What the adapter adds to one layer: scale B A."""

    name: str
    """The layer's full name in the base."""
    a_RI: Tensor
    b_OR: Tensor
    scale: float


@dataclass(frozen=True, slots=True)
class StartAdapter:
    """A PEFT folder, read."""

    folder: Path
    trained_on: str
    """What it calls its base; empty where it does not say."""
    layers: tuple[StartLayer, ...]


def read_start(folder: Path) -> StartAdapter:
    """Read a PEFT folder.

    Raises:
        SpecError: it is damaged, or is more than LoRA on linear layers.
    """
    config, tensors = _read(folder)
    _refuse_other_kinds(folder, config)
    layers = tuple(
        StartLayer(name, a_RI, b_OR, _scale(config, name, a_RI.shape[0]))
        for name, (a_RI, b_OR) in _pairs(folder, tensors).items()
    )
    return StartAdapter(folder, str(config.get("base_model_name_or_path") or ""), layers)


@torch.no_grad()
def merge_start(model: PreTrainedModel, start: StartAdapter, hub_id: str | None) -> None:
    """Add the adapter to the weights of ``model``.

    ``hub_id``: of the base, where it came from the hub.

    Raises:
        SpecError: the adapter belongs to another base, or changes a head that is the embedding too.
    """
    if hub_id is not None and _is_another_model(start.trained_on, hub_id):
        raise SpecError(
            f"model.adapter: {start.folder} was trained on {start.trained_on}, not on {hub_id}: give that as model.base"
        )
    modules = dict(model.named_modules())
    for layer in start.layers:
        _refuse_misfit(start, layer, modules.get(layer.name))
    embedding: Any = model.get_input_embeddings()
    for layer in start.layers:
        module = modules[layer.name]
        weight = cast("nn.Parameter", module.weight)
        if weight is embedding.weight:
            raise SpecError(
                f"model.adapter: {start.folder} changes {layer.name}, whose weights are the embedding's too: "
                f"{_MERGE_ADVICE}"
            )
        delta_OI = layer.scale * (layer.b_OR.float() @ layer.a_RI.float())
        delta = delta_OI.T if is_transposed(module) else delta_OI
        weight.copy_((weight.float() + delta.to(weight.device)).to(weight.dtype))


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        return dict(config), load_file(folder / WEIGHTS)
    except (OSError, ValueError, TypeError, SafetensorError) as error:
        raise SpecError(f"model.adapter: {folder} can't be read: {error}") from error


def _refuse_other_kinds(folder: Path, config: Mapping[str, Any]) -> None:
    kind = config.get("peft_type")
    found = [] if kind == "LORA" else [f"peft_type {kind}"]
    found += [
        key for key in ("use_dora", "modules_to_save", "target_parameters") if config.get(key)
    ]
    if config.get("bias", "none") != "none":
        found.append(f"bias {config['bias']}")
    if found:
        raise SpecError(
            f"model.adapter: {folder} is more than LoRA on linear layers ({', '.join(found)}): "
            f"{_MERGE_ADVICE}"
        )


def _is_another_model(trained_on: str, base: str) -> bool:
    """By name, where both are hub ids; the owner may differ (mirrors)."""
    if trained_on.count("/") != 1 or trained_on.startswith((".", "/", "~")):
        return False
    return trained_on.rpartition("/")[2].casefold() != base.rpartition("/")[2].casefold()


def _pairs(folder: Path, tensors: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
    """A ``[R, I]`` and B ``[O, R]`` by the layer's full name."""
    found: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        match = _NAME.fullmatch(name.removeprefix(_PREFIX))
        if match is None:
            raise SpecError(
                f"model.adapter: {folder} holds {name}, which is no LoRA matrix of a linear layer: "
                f"{_MERGE_ADVICE}"
            )
        found.setdefault(match["layer"], {})[match["kind"]] = tensor
    halves = sorted(name for name, pair in found.items() if len(pair) != 2)
    if halves or not found:
        fault = f"{halves[0]} has one matrix of two" if halves else "there are no matrices in it"
        raise SpecError(f"model.adapter: {folder} is not whole: {fault}")
    return {name: (pair["A"], pair["B"]) for name, pair in found.items()}


def _refuse_misfit(start: StartAdapter, layer: StartLayer, module: nn.Module | None) -> None:
    (rank, num_in), (num_out, rank_of_b) = layer.a_RI.shape, layer.b_OR.shape
    size = None if module is None else size_of(module)
    if size == (num_in, num_out) and rank == rank_of_b:
        return
    there = "has no such linear layer" if size is None else f"has {size[1]} x {size[0]} there"
    base = f" (it was trained on {start.trained_on})" if start.trained_on else ""
    raise SpecError(
        f"model.adapter: {start.folder} belongs to another base{base}: {layer.name} is {num_out} x {num_in} in it, "
        f"and this model {there}"
    )


def _scale(config: Mapping[str, Any], name: str, rank: int) -> float:
    alpha = float(_of_pattern(config.get("alpha_pattern"), name, config.get("lora_alpha", rank)))
    return alpha / (rank**0.5 if config.get("use_rslora") else rank)


def _of_pattern(patterns: Mapping[str, Any] | None, name: str, default: Any) -> Any:
    for pattern, value in (patterns or {}).items():
        if re.fullmatch(rf"(.*\.)?({pattern})", name):
            return value
    return default
