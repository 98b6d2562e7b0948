"""A trial's best adapter and its base's linear layers in, a folder that `peft` loads out: no torch.

adapter_config.json, adapter_model.safetensors and a README.md. PEFT names a weight
``base_model.model.`` + the layer's full name in the base + ``.lora_A.weight``; kltune leaves out the
name of the base's body, which is the same for all of them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from kltune.errors import RunError, SpecError, StudyError
from kltune.export.setting import Winner

PREFIX: Final = "base_model.model."
"""Before every name in a file of PEFT (0.21, utils/save_and_load.py)."""


@dataclass(frozen=True, slots=True)
class BaseLayers:
    """What must be known of a base to name its layers as PEFT does."""

    address: str
    """What ``from_pretrained`` takes: a hub id or a folder."""
    gguf_file: str | None
    body: str
    """Name of the decoder body within the model; empty where it is the model."""
    linear: Mapping[str, tuple[int, int]]
    """Outputs and inputs of every linear layer, by its full name."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """A trial's trained weights as the trial left them."""

    step: int
    rank: int
    alpha: int
    targets: tuple[str, ...]
    """Linear layers, by their names within the body."""
    tensors: Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class PeftFolder:
    """What was written."""

    path: Path
    step: int
    """Of the checkpoint."""
    warnings: tuple[str, ...]


def read_adapter(study: Path, winner: Winner) -> Adapter:
    """Read ``checkpoints/best`` of the winner's trial.

    Raises:
        StudyError: it is not there.
        SpecError: all weights were trained, so there is no adapter.
        RunError: it is damaged.
    """
    if winner.source.lora_rank is None:
        raise SpecError(
            "--to peft: this study trained all weights (model.finetune: full), and a PEFT folder holds an adapter; "
            "a trial's weights are in checkpoints/best/adapter.safetensors, by the model's own names"
        )
    best = study / "trials" / f"{winner.source.trial:05d}" / "checkpoints" / "best"
    folder = best if best.is_dir() else best.with_name("best.old")  # a crash between two renames
    if not folder.is_dir():
        raise StudyError(
            f"{best}: gone, so there is no adapter to export (checkpoints stay on the machine that ran the "
            "study unless they are copied along); --trial takes another, or kltune sweep with another --study runs it again"
        )
    try:
        facts: dict[str, Any] = json.loads((folder / "adapter.json").read_text(encoding="utf-8"))
        tensors = load_file(folder / "adapter.safetensors")
        return Adapter(
            step=int(facts["step"]),
            rank=int(facts["rank"]),
            alpha=round(float(facts["alpha"])),
            targets=tuple(str(name) for name in facts["targets"]),
            tensors=tensors,
        )
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise RunError(f"checkpoint {folder} can't be read: {error!r}") from error


def write_peft(adapter: Adapter, base: BaseLayers, winner: Winner, out: Path) -> PeftFolder:
    """Write the folder ``out``, all of it or nothing.

    Raises:
        SpecError: ``out`` holds something already.
        RunError: the adapter does not fit the base.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SpecError(f"--out: {out} is there already and not empty; give a new folder")
    tensors = {f"{PREFIX}{n}": t for n, t in _named(adapter, base).items()}
    new = out.with_name(f"{out.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    save_file(tensors, new / "adapter_model.safetensors", metadata={"format": "pt"})
    config = json.dumps(_config(adapter, base), indent=2)
    (new / "adapter_config.json").write_text(f"{config}\n", encoding="utf-8")
    (new / "README.md").write_text(_readme(adapter, base, winner), encoding="utf-8")
    if out.is_dir():
        out.rmdir()
    new.rename(out)
    return PeftFolder(out, adapter.step, tuple(_warnings(adapter, base, winner)))


def _named(adapter: Adapter, base: BaseLayers) -> dict[str, np.ndarray]:
    """Every weight by its full name in the base, checked against the base's layers."""
    named: dict[str, np.ndarray] = {}
    for target in adapter.targets:
        layer = _full(target, base)
        outputs, inputs = base.linear.get(layer, (0, 0))
        wanted = {"lora_A": (adapter.rank, inputs), "lora_B": (outputs, adapter.rank)}
        for kind, shape in wanted.items():
            tensor = adapter.tensors.get(f"{target}.{kind}.weight")
            if tensor is None or tensor.shape != shape:
                found = "absent" if tensor is None else f"{tensor.shape[0]} x {tensor.shape[1]}"
                raise RunError(
                    f"the adapter does not fit {base.address}: {layer}.{kind} must be {shape[0]} x {shape[1]}, "
                    f"it is {found}"
                )
            named[f"{layer}.{kind}.weight"] = np.ascontiguousarray(tensor)
    return named


def _full(target: str, base: BaseLayers) -> str:
    return f"{base.body}.{target}" if base.body else target


def _target_modules(adapter: Adapter, base: BaseLayers) -> list[str]:
    """Last parts of the names where these choose the same layers (other tools read them), else full names."""
    full = {_full(target, base) for target in adapter.targets}
    ends = {name.rpartition(".")[2] for name in full}
    chosen = {name for name in base.linear if name.rpartition(".")[2] in ends}
    return sorted(ends if chosen == full else full)


def _config(adapter: Adapter, base: BaseLayers) -> dict[str, Any]:
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base.address,
        "r": adapter.rank,
        "lora_alpha": adapter.alpha,
        "lora_dropout": 0.0,
        "target_modules": _target_modules(adapter, base),
        "bias": "none",
        "fan_in_fan_out": False,
        "modules_to_save": None,
        "use_rslora": False,
        "inference_mode": True,
    }


def _warnings(adapter: Adapter, base: BaseLayers, winner: Winner) -> list[str]:
    warnings: list[str] = []
    stop = winner.stop
    if stop is not None and stop.peak_step != adapter.step:
        warnings.append(
            f"the adapter is that of step {adapter.step}, the best when the trial ended; by the study's rule the "
            f"stop is step {stop.peak_step}, whose weights were not kept"
        )
    if Path(base.address).is_absolute():
        warnings.append(
            f"adapter_config.json names the base by a folder of this machine ({base.address}): change "
            "base_model_name_or_path where it lies elsewhere"
        )
    if base.gguf_file is not None:
        warnings.append(
            "the base is a GGUF, which peft can't load by the name in adapter_config.json: load it as README.md says"
        )
    return warnings


def _readme(adapter: Adapter, base: BaseLayers, winner: Winner) -> str:
    source, stop, gold = winner.source, winner.stop, winner.gold
    gguf = "" if base.gguf_file is None else f', gguf_file="{base.gguf_file}"'
    at_peak = stop is not None and stop.peak_step == adapter.step
    kl = (
        f" Exact KL to the start of training: {stop.kl_token:.4g} nats/token, {stop.kl_seq:.4g} nats/sequence, {stop.basis}."
        if stop is not None and at_peak
        else ""
    )
    worth = f" Gold: {gold.value:.4g} ({gold.basis})." if gold is not None and at_peak else ""
    return f"""---
library_name: peft
base_model: {json.dumps(base.address)}
---

Adapter of trial {source.trial}, step {adapter.step}, of the kltune study {source.study}: LoRA of rank {adapter.rank} on {source.base}, trained at temperature {winner.trainer.temperature:g} on completions of at most {winner.trainer.max_new_tokens} tokens.{kl}{worth}

```python
from peft import PeftModel
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained({json.dumps(base.address)}{gguf}, dtype="float32")
model = PeftModel.from_pretrained(base, "FOLDER")  # the folder of this file
```
"""
