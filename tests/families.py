"""Tiny random models of other families than tests/tiny.py's Llama, with the same tokenizer."""

from __future__ import annotations

import tiny
import torch
from accelerate import Accelerator
from transformers import (
    MistralConfig,
    MistralForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedModel,
)

from kltune.trainer.model import LoadedModel, freeze


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


def _loaded(model: PreTrainedModel) -> LoadedModel:
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.float().named_parameters():
            if parameter.dim() == 2:
                drawn = torch.randn(parameter.shape, generator=generator)
                scale = 3.0 if "lm_head" in name else 1.0
                parameter.copy_(scale * drawn * parameter.shape[1] ** -0.5)
    return freeze(model, tiny.tokenizer(), Accelerator(cpu=True))
