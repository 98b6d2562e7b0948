"""A slot in, a folder out, and back: everything that continues a trial, written atomically.

``checkpoints/last``: slot.json (step, controller, optimiser steps, setting) and
slot.safetensors (trained weights and both moments; critic and moving reference where there
are any). ``checkpoints/best``: the trained weights alone, an adapter by PEFT's parameter names. A folder is
replaced by renames: a crash leaves the old or the new one. Its files are on the disk before they get their
name, so a power failure does too (the renames themselves may be lost: then it is the old one).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from kltune.errors import CheckpointError, DiskError
from kltune.spec.trial import TrialSpec
from kltune.trainer.controller import ControlState
from kltune.trainer.lora import AdapterStack
from kltune.trainer.optimizer import StackedAdamW
from kltune.trainer.parts import BankParts
from kltune.trainer.shaping import Moments
from kltune.trainer.slot import SlotState
from kltune.trainer.stack import TrainableStack
from kltune.trial.disk import disk_error, os_error_of, remove, sync_file, writing

SCHEMA = 2
"""2: controller state, running moments, critic and moving reference; 1 (adapter and beta alone) is still read."""

WEIGHTS_SCHEMA = 1
"""Of the trained weights alone."""


_SEEN_OF_WEIGHT = 16
"""Numbers of each weight of the base that its fingerprint looks at."""


def fingerprint(base: nn.Module) -> str:
    """Tell the base from another one: a digest of names, shapes, types and some numbers of every weight."""
    digest = hashlib.sha256()
    for name, weight in sorted(base.named_parameters()):
        flat = weight.detach().reshape(-1)
        step = max(1, flat.numel() // _SEEN_OF_WEIGHT)
        seen = flat[::step][:_SEEN_OF_WEIGHT].to("cpu", torch.float32)
        digest.update(f"{name}{tuple(weight.shape)}{weight.dtype}".encode())
        digest.update(seen.numpy().tobytes())
    return digest.hexdigest()[:16]


def save_slot(
    folder: Path, slot: int, state: SlotState, parts: BankParts, base: str | None = None
) -> None:
    """Write a slot's whole state; ``base``: the :func:`fingerprint` of what it was trained on.

    Raises:
        DiskError: it can't be written; the checkpoint that was there before stays.
    """
    facts = {
        "schema": SCHEMA,
        "trial": state.trial_number,
        "step": state.step,
        "control": state.control.to_json(),
        "scores": asdict(state.scores),
        "optimizer_steps": {
            name: store.num_steps_K[row] for name, (store, row) in _moments(parts, slot).items()
        },
        "setting": state.spec.model_dump(mode="json"),
        "base": base,
    }
    _replace_folder(folder, "slot", _tensors(parts, slot), facts)


def load_slot(
    folder: Path,
    slot: int,
    parts: BankParts,
    spec: TrialSpec | None = None,
    base: str | None = None,
) -> SlotState:
    """Put a saved state into ``slot``; any slot will do. ``spec``, ``base``: what it must belong to.

    Raises:
        CheckpointError: the checkpoint is damaged, of another schema, shape or algorithm, or of another
            setting or base; nothing was changed.
    """
    folder = folder if folder.exists() else _old(folder)
    try:
        facts = json.loads((folder / "slot.json").read_text(encoding="utf-8"))
        facts = _upgraded(facts, folder)
        tensors = load_file(folder / "slot.safetensors")
        steps = {name: int(count) for name, count in facts["optimizer_steps"].items()}
        state = SlotState(
            trial_number=int(facts["trial"]),
            spec=TrialSpec.model_validate(facts["setting"]),
            step=int(facts["step"]),
            control=ControlState.from_json(facts["control"]),
            scores=Moments(**facts["scores"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise CheckpointError(f"checkpoint {folder} can't be read: {error!r}") from error
    if spec is not None and state.spec != spec:
        raise CheckpointError(
            f"checkpoint {folder} is of another setting: {_differing(state.spec, spec)}"
        )
    if None not in (base, facts.get("base")) and base != facts["base"]:
        raise CheckpointError(f"checkpoint {folder} was trained on another base model")
    targets, moments = _tensors(parts, slot), _moments(parts, slot)
    problem = _mismatch(tensors, targets) or _mismatch(steps, moments)
    if problem is not None:
        raise CheckpointError(f"checkpoint {folder} does not fit this study's model: {problem}")
    # Everything was read before anything is changed.
    for name, target in targets.items():
        target.copy_(tensors[name])
    for name, (store, row) in moments.items():
        store.num_steps_K[row] = steps[name]
    return state


def _tensors(parts: BankParts, slot: int) -> dict[str, Tensor]:
    """Views of everything that a slot has stored, by the name it has in a checkpoint."""
    found: dict[str, Tensor] = {"adapter": parts.stack.flat_KP[slot]}
    if parts.rows.has_critic:
        (row,) = parts.rows.critics((slot,))
        found["critic"] = parts.stack.flat_KP[row]
    if parts.critic is not None:
        found["value_head"] = parts.critic.head_KH[slot]
    if parts.rows.has_reference:
        (row,) = parts.rows.references((slot,))
        found["reference"] = parts.stack.flat_KP[row]
    for name, (store, row) in _moments(parts, slot).items():
        prefix = "" if name == "adapter" else f"{name}."
        found[f"{prefix}exp_avg"] = store.exp_avg_KP[row]
        found[f"{prefix}exp_avg_sq"] = store.exp_avg_sq_KP[row]
    return found


def _moments(parts: BankParts, slot: int) -> dict[str, tuple[StackedAdamW, int]]:
    """Where the moments of each trained part of a slot are."""
    found = {"adapter": (parts.optimizer, slot)}
    if parts.critic is not None:
        (row,) = parts.rows.critics((slot,))
        found["critic"] = (parts.optimizer, row)
        found["value_head"] = (parts.critic.optimizer, slot)
    return found


def _upgraded(facts: dict[str, Any], folder: Path) -> dict[str, Any]:
    if facts["schema"] == SCHEMA:
        return facts
    if facts["schema"] != 1:
        raise CheckpointError(
            f"checkpoint {folder} has schema {facts['schema']}, this version reads {SCHEMA}"
        )
    control = ControlState(beta=float(facts["beta"]), target=facts["setting"].get("target_kl"))
    return {
        **facts,
        "control": control.to_json(),
        "scores": asdict(Moments()),
        "optimizer_steps": {"adapter": facts["optimizer_steps"]},
    }


def _differing(found: TrialSpec, wanted: TrialSpec) -> str:
    ours, theirs = wanted.model_dump(mode="json"), found.model_dump(mode="json")
    names = [name for name in ours if ours[name] != theirs.get(name)]
    return ", ".join(f"{name} {theirs.get(name)}, not {ours[name]}" for name in names)


def _mismatch(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    """What a checkpoint holds that this bank does not, or the other way round; none where they agree."""
    if found.keys() != wanted.keys():
        return f"it holds {', '.join(sorted(found))}, this study needs {', '.join(sorted(wanted))}"
    for name, tensor in found.items():
        if isinstance(tensor, Tensor) and tensor.shape != wanted[name].shape:
            return f"{name} holds {tensor.numel():,} numbers, this study's has {wanted[name].numel():,}"
    return None


def save_adapter(folder: Path, slot: int, state: SlotState, stack: TrainableStack) -> None:
    """Write a slot's trained weights alone."""
    facts: dict[str, Any] = {
        "schema": WEIGHTS_SCHEMA,
        "trial": state.trial_number,
        "step": state.step,
    }
    if isinstance(stack, AdapterStack):
        facts |= {
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
    weights, notes = new / f"{stem}.safetensors", new / f"{stem}.json"
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    try:
        with writing(folder):
            remove(new)
            new.mkdir(parents=True)
            save_file(contiguous, weights)
            notes.write_text(json.dumps(facts, indent=1), encoding="utf-8")
            sync_file(weights)
            sync_file(notes)
            if folder.exists():
                remove(old)
                folder.rename(old)
            new.rename(folder)
    except SafetensorError as error:
        remove(new)
        cause = os_error_of(str(error), weights)
        if cause is None:
            raise
        raise disk_error(folder, cause) from error
    except DiskError:
        remove(new)  # half of a checkpoint takes the room that is lacking
        raise
    remove(old)
