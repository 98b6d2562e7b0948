"""A base and a LoRA adapter of it, both in folders, saved as transformers and peft save them."""

from __future__ import annotations

from pathlib import Path

import architectures
import tiny
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor
from transformers import PreTrainedModel

from kltune.spec.model import ModelSpec
from kltune.trainer.model import LoadedModel, load_model
from kltune.trainer.sources import find_model

IDS = torch.tensor([[4, 9, 17, 5, 23]])


def saved_adapter(model: PreTrainedModel, folder: Path, **config: object) -> PeftModel:
    """An adapter by peft with random matrices, saved as it saves them; ``model`` is wrapped in place."""
    given = {"r": 4, "lora_alpha": 12, "target_modules": "all-linear", **config}
    wrapped = get_peft_model(
        model,
        LoraConfig(task_type="CAUSAL_LM", **given),  # pyright: ignore[reportArgumentType]
    )
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "lora_" in name:
                parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    wrapped.save_pretrained(str(folder), save_embedding_layers=False)
    return wrapped.eval()


def saved_base(name: str, folder: Path) -> Path:
    architectures.plain(name).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return folder


def load(base: Path, adapter: Path | None) -> LoadedModel:
    spec = ModelSpec(base=str(base), adapter=None if adapter is None else str(adapter), rank=4)
    return load_model(spec, find_model(spec, Path), "cpu", "fp32")


@torch.no_grad()
def logits(model: LoadedModel | PeftModel) -> Tensor:
    return (model.model if isinstance(model, LoadedModel) else model)(input_ids=IDS).logits
