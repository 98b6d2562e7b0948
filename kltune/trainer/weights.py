"""A best checkpoint's folder in, its trained weights in a row of the stack."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from kltune.errors import RunError
from kltune.trainer.stack import TrainableStack


def load_weights(folder: Path, slot: int, stack: TrainableStack) -> int:
    """Put weights that ``save_adapter`` wrote into ``slot``; return the step they are of.

    Raises:
        RunError: the folder is damaged, or holds weights of another shape.
    """
    try:
        step = int(json.loads((folder / "adapter.json").read_text(encoding="utf-8"))["step"])
        tensors = load_file(folder / "adapter.safetensors")
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise RunError(f"checkpoint {folder} can't be read: {error!r}") from error
    wanted = {name: tensor.shape for name, tensor in stack.tensors(slot).items()}
    found = {name: tensor.shape for name, tensor in tensors.items()}
    if found != wanted:
        raise RunError(
            f"checkpoint {folder} does not fit this study's model: it holds {len(found)} tensors with "
            f"{sum(shape.numel() for shape in found.values()):,} numbers, needed are {len(wanted)} with "
            f"{sum(shape.numel() for shape in wanted.values()):,}"
        )
    # A stack names a row's weights in the order in which they lie in it.
    flat_P = torch.cat([tensors[name].flatten() for name in wanted])
    stack.flat_KP[slot].copy_(flat_P)
    return step
