"""Tiny random models, classifiers and data sets on disk, of the architectures and columns of those on the hub.

Their tokenizer reads any text: it knows every byte.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import torch
import transformers as hf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""As Qwen and SmolLM2 write a conversation."""

PAD, END, START, STOP = "<pad>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
VOCABULARY = 4 + len(ALPHABET)

SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY + 4, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 1024, "pad_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
"""Its vocabulary is padded, as most are."""


def tokenizer(chat: bool = False) -> PreTrainedTokenizerFast:
    """Of bytes; with ``chat`` a template, and its own stop token."""
    words = [PAD, END, START, STOP, *ALPHABET]
    inner = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token=PAD,
        eos_token=STOP if chat else END,
        additional_special_tokens=[START, STOP] if chat else [],
        padding_side="left",
    )
    if chat:
        made.chat_template = CHAT
    return made


def save_policy(
    folder: Path, kind: str, *, chat: bool = False, favours: Sequence[str] = (), **config: object
) -> Path:
    """A causal model: ``Qwen2``, ``GPTNeoX``, ``GPT2``, ``Llama``; it writes the tokens that it favours most of the time."""
    head = "LMHeadModel" if kind == "GPT2" else "ForCausalLM"
    return _save(folder, kind, head, chat, config, favours)


def save_classifier(folder: Path, kind: str, labels: Iterable[str], **config: object) -> Path:
    """A sequence classifier with these outputs."""
    names = dict(enumerate(labels))
    return _save(folder, kind, "ForSequenceClassification", False, {**config, "id2label": names})


def save_rows(folder: Path, **parts: list[dict[str, object]]) -> Path:
    """A data set with these splits."""
    datasets: Any = importlib.import_module("datasets")
    made = {name: datasets.Dataset.from_list(rows) for name, rows in parts.items()}
    datasets.DatasetDict(made).save_to_disk(str(folder))
    return folder


def _save(
    folder: Path,
    kind: str,
    head: str,
    chat: bool,
    config: dict[str, Any],
    favours: Sequence[str] = (),
) -> Path:
    made: PretrainedConfig = getattr(hf, f"{kind}Config")(**{**SMALL, **config})
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(5)
        model: PreTrainedModel = getattr(hf, kind + head)(made)
    reader = tokenizer(chat)
    if favours:
        with torch.no_grad():
            # Every hidden state points where all embeddings do, and these are the longest there.
            weight = cast("torch.Tensor", model.get_input_embeddings().weight)
            weight.add_(0.3)
            weight[reader.convert_tokens_to_ids(list(favours))] += 0.1
    model.save_pretrained(str(folder))
    reader.save_pretrained(str(folder))
    return folder
