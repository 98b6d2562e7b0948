"""Tiny random models of other families than tests/tiny.py's Llama, with the same tokenizer."""

from __future__ import annotations

from collections.abc import Callable

import tiny
import torch
from accelerate import Accelerator
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from kltune.trainer.model import LoadedModel, freeze

SHAPE = {
    "vocab_size": 30, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
    "pad_token_id": 0, "bos_token_id": None, "eos_token_id": 1, "tie_word_embeddings": False,
}  # fmt: skip
"""Of the families that have a forward of our own."""


def opt() -> LoadedModel:
    """Learned absolute positions (as GPT-2 has), dropout in the config, loaded in train mode."""
    config = OPTConfig(
        vocab_size=30, hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=64, word_embed_proj_dim=32, dropout=0.1, attention_dropout=0.1,
        pad_token_id=0, bos_token_id=None, eos_token_id=1, tie_word_embeddings=False,
    )  # fmt: skip
    return _loaded(OPTForCausalLM(config).train())


def mistral() -> LoadedModel:
    """A sliding window that is shorter than prompt and completion."""
    config = MistralConfig(
        vocab_size=30, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, sliding_window=4,
        pad_token_id=0, bos_token_id=None, eos_token_id=1, tie_word_embeddings=False,
    )  # fmt: skip
    return _loaded(MistralForCausalLM(config))


def llama(**config: object) -> LoadedModel:
    """Any of its variants: tied embeddings, as many key-value heads as queries, scaled positions."""
    return _loaded(LlamaForCausalLM(LlamaConfig(**{**SHAPE, **config})), is_all_random=True)


def full_mistral(**config: object) -> LoadedModel:
    """No sliding window."""
    given = {**SHAPE, "sliding_window": None, **config}
    return _loaded(MistralForCausalLM(MistralConfig(**given)), is_all_random=True)


def qwen2(**config: object) -> LoadedModel:
    """Biases on queries, keys and values."""
    return _loaded(Qwen2ForCausalLM(Qwen2Config(**{**SHAPE, **config})), is_all_random=True)


def qwen3(**config: object) -> LoadedModel:
    """Norms of queries and keys; heads of another width than hidden size / heads."""
    given = {**SHAPE, "head_dim": 12, **config}
    return _loaded(Qwen3ForCausalLM(Qwen3Config(**given)), is_all_random=True)


LLAMA3_POSITIONS = {
    "rope_type": "llama3", "rope_theta": 10_000.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
}  # fmt: skip

KNOWN: dict[str, Callable[[], LoadedModel]] = {
    "llama": llama,
    "llama-tied": lambda: llama(tie_word_embeddings=True),
    "llama-one-key-head-per-query": lambda: llama(num_key_value_heads=4),
    "llama-biased": lambda: llama(attention_bias=True, mlp_bias=True),
    "llama3-positions": lambda: llama(rope_parameters=LLAMA3_POSITIONS),
    "mistral": full_mistral,
    "qwen2": qwen2,
    "qwen3": qwen3,
}
"""Every kind of model that our own forward runs."""


def _loaded(model: PreTrainedModel, is_all_random: bool = False) -> LoadedModel:
    """``is_all_random``: norms and biases too, which a model starts at 1 and 0."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.float().named_parameters():
            if parameter.dim() == 2:
                drawn = torch.randn(parameter.shape, generator=generator)
                scale = 3.0 if "lm_head" in name else 1.0
                parameter.copy_(scale * drawn * parameter.shape[1] ** -0.5)
            elif is_all_random:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return freeze(model, tiny.tokenizer(), Accelerator(cpu=True))
