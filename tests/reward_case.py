"""Tiny random sequence classifiers with a word tokenizer of their own, saved as people save them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedModel, PreTrainedTokenizerFast

WORDS = ("<pad>", "<bos>", "<eos>", "<unk>", *"abcdefghijklmnop", "[user]", "[assistant]")


def tokenizer(*, bos: bool = False, pad: bool = True) -> PreTrainedTokenizerFast:
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if bos:
        inner.post_processor = processors.TemplateProcessing(
            single="<bos> $A", special_tokens=[("<bos>", 1)]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        bos_token="<bos>",
        eos_token="<eos>",
        unk_token="<unk>",
        **({"pad_token": "<pad>"} if pad else {}),
    )


def save_classifier(folder: Path, config: Any, kind: type[PreTrainedModel], **tokens: bool) -> Path:
    """Weights from a generator of their own, large enough that texts are told apart."""
    with torch.random.fork_rng(devices=[]):
        model = kind(config).float()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                drawn = torch.randn(parameter.shape, generator=generator)
                parameter.copy_(drawn * 2 * parameter.shape[1] ** -0.5)
    model.save_pretrained(folder)
    tokenizer(**tokens).save_pretrained(folder)
    return folder
