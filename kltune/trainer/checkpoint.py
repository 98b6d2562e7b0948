"""A slot in, a folder out, and back: everything that continues a trial, written atomically.

``checkpoints/last``: slot.json (step, beta, optimiser steps, setting) and
slot.safetensors (adapter and both moments). ``checkpoints/best``: the adapter alone, by
PEFT's parameter names. A folder is replaced by renames: a crash leaves the old or the new one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from kltune.errors import RunError
from kltune.spec.trial import TrialSpec
from kltune.trainer.lora import AdapterStack
from kltune.trainer.optimizer import StackedAdamW
from kltune.trainer.slot import SlotState

SCHEMA = 1


def save_slot(
    folder: Path, slot: int, state: SlotState, stack: AdapterStack, optimizer: StackedAdamW
) -> None:
    """Write a slot's whole state."""
    tensors = {
        "adapter": stack.flat_KP[slot],
        "exp_avg": optimizer.exp_avg_KP[slot],
        "exp_avg_sq": optimizer.exp_avg_sq_KP[slot],
    }
    facts = {
        "schema": SCHEMA,
        "trial": state.trial_number,
        "step": state.step,
        "beta": state.beta,
        "optimizer_steps": optimizer.num_steps_K[slot],
        "setting": state.spec.model_dump(mode="json"),
    }
    _replace_folder(folder, "slot", tensors, facts)


def load_slot(folder: Path, slot: int, stack: AdapterStack, optimizer: StackedAdamW) -> SlotState:
    """Put a saved state into ``slot``; any slot will do.

    Raises:
        RunError: the checkpoint is damaged, of another schema, or of another adapter shape.
    """
    folder = folder if folder.exists() else _old(folder)
    try:
        facts = json.loads((folder / "slot.json").read_text(encoding="utf-8"))
        if facts["schema"] != SCHEMA:
            raise RunError(
                f"checkpoint {folder} has schema {facts['schema']}, this version reads {SCHEMA}"
            )
        tensors = load_file(folder / "slot.safetensors")
        adapter, moments = tensors["adapter"], (tensors["exp_avg"], tensors["exp_avg_sq"])
        optimizer_steps = int(facts["optimizer_steps"])
        state = SlotState(
            trial_number=int(facts["trial"]),
            spec=TrialSpec.model_validate(facts["setting"]),
            step=int(facts["step"]),
            beta=float(facts["beta"]),
        )
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise RunError(f"checkpoint {folder} can't be read: {error!r}") from error
    if any(tensor.shape != stack.flat_KP[slot].shape for tensor in (adapter, *moments)):
        raise RunError(
            f"checkpoint {folder} holds {adapter.numel()} adapter parameters, "
            f"this study's model has {stack.num_parameters}"
        )
    # Everything was read before anything is changed.
    stack.flat_KP[slot].copy_(adapter)
    optimizer.exp_avg_KP[slot].copy_(moments[0])
    optimizer.exp_avg_sq_KP[slot].copy_(moments[1])
    optimizer.num_steps_K[slot] = optimizer_steps
    return state


def save_adapter(folder: Path, slot: int, state: SlotState, stack: AdapterStack) -> None:
    """Write a slot's adapter alone."""
    facts = {
        "schema": SCHEMA,
        "trial": state.trial_number,
        "step": state.step,
        "rank": stack.rank,
        "alpha": stack.scale * stack.rank,
        "targets": [target.name for target in stack.targets],
    }
    _replace_folder(folder, "adapter", stack.tensors(slot), facts)


def _old(folder: Path) -> Path:
    return folder.with_name(folder.name + ".old")


def _replace_folder(
    folder: Path, stem: str, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]
) -> None:
    new, old = folder.with_name(folder.name + ".new"), _old(folder)
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(contiguous, new / f"{stem}.safetensors")
    (new / f"{stem}.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
    if folder.exists():
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
