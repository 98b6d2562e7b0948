"""A loaded base and what is trained on it in, the bytes of a trial's checkpoints out: before any bank is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kltune.spec.model import ModelSpec
from kltune.spec.trainer import TrainerSpec
from kltune.trainer.adapted_layers import find_targets, size_of
from kltune.trainer.model import LoadedModel

_BESIDE: Final = 4096
"""Bytes of slot.json or adapter.json, and of the header of a safetensors file of some hundred tensors."""
_ADAPTER_HEADER: Final = 240
"""Bytes that each adapted layer takes in the header and in adapter.json."""
_FLOAT32: Final = 4


@dataclass(frozen=True, slots=True)
class CheckpointSize:
    """Bytes on disk."""

    last: int
    """All that continues a trial: weights, moments, critic, moving reference."""
    best: int
    """The trained weights alone."""


def checkpoint_size(loaded: LoadedModel, model: ModelSpec, trainer: TrainerSpec) -> CheckpointSize:
    """Count what one trial's checkpoints take; the base carries no adapters now.

    Raises:
        SpecError: no layer can carry the adapters that the spec asks for.
    """
    has_critic = trainer.value_function is not None
    has_reference = trainer.reference.every is not None
    if model.finetune == "full":
        weights = list(loaded.model.parameters())  # a tied one once
        one, layers = sum(w.numel() * w.element_size() for w in weights), len(weights)
    else:
        sizes = [size_of(layer) or (0, 0) for _, layer in find_targets(loaded.body, model.adapters)]
        one, layers = _FLOAT32 * model.rank * sum(map(sum, sizes)), 2 * len(sizes)
    # Policy and critic with two moments each; the reference is weights alone.
    rows = 3 * (1 + has_critic) + has_reference
    value_head = 3 * _FLOAT32 * (loaded.head.in_features + 1) if has_critic else 0
    best = one + layers * _ADAPTER_HEADER + _BESIDE
    return CheckpointSize(rows * one + value_head + _BESIDE, best)
