"""One tiny random model of each architecture of transformers that the trainer is held to, with tests/tiny.py's tokenizer."""

from __future__ import annotations

import tiny
import torch
import transformers as hf
from accelerate import Accelerator
from transformers import PretrainedConfig, PreTrainedModel

from kltune.trainer.model import LoadedModel, freeze, with_own_forward

WINDOW = 4
"""Sliding windows: shorter than prompt and completion."""
PADDED = 37
"""Vocabulary of the models: 7 ids more than the tokenizer has."""

_LLAMA_LIKE: dict[str, object] = {
    "vocab_size": PADDED, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
    "pad_token_id": 0, "bos_token_id": None, "eos_token_id": 1, "tie_word_embeddings": False,
}  # fmt: skip
_GPT2_LIKE: dict[str, object] = {
    "vocab_size": PADDED, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64,
    "eos_token_id": 1, "bos_token_id": 1,
}  # fmt: skip
_HEADS: dict[str, object] = {"head_dim": 8, "sliding_window": WINDOW}
_EXPERTS: dict[str, object] = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
}
_SHARED: dict[str, object] = {**_EXPERTS, "shared_expert_intermediate_size": 24}
_LATENT: dict[str, object] = {
    "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1,
    "moe_intermediate_size": 24, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8, "v_head_dim": 8, "first_k_dense_replace": 1, "num_key_value_heads": 4,
}  # fmt: skip
_FALCON: dict[str, object] = {
    "vocab_size": PADDED, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "eos_token_id": 1, "bos_token_id": 1,
}  # fmt: skip
_MIXED = ["sliding_attention", "full_attention"]

SPECS: dict[str, tuple[str, dict[str, object]]] = {
    "llama": ("Llama", _LLAMA_LIKE),
    "llama-tied": ("Llama", {**_LLAMA_LIKE, "tie_word_embeddings": True}),
    "qwen2": ("Qwen2", {**_LLAMA_LIKE, "tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {**_LLAMA_LIKE, "head_dim": 12}),
    "mistral-window": ("Mistral", {**_LLAMA_LIKE, "sliding_window": WINDOW}),
    "gemma2-capped": (
        "Gemma2",
        {**_LLAMA_LIKE, **_HEADS, "tie_word_embeddings": True, "final_logit_softcapping": 2.0,
         "attn_logit_softcapping": 5.0},
    ),
    "gemma3": ("Gemma3", {**_LLAMA_LIKE, **_HEADS, "tie_word_embeddings": True, "layer_types": _MIXED}),
    "phi3-fused": ("Phi3", {**_LLAMA_LIKE, "sliding_window": WINDOW}),
    "gpt2-conv1d": ("GPT2", {**_GPT2_LIKE, "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1}),
    "gpt-neox": ("GPTNeoX", _LLAMA_LIKE),
    "gpt-neo-local": (
        "GPTNeo",
        {
            "vocab_size": PADDED, "hidden_size": 32, "num_layers": 2, "num_heads": 4,
            "attention_types": [[["global", "local"], 1]], "window_size": WINDOW,
            "max_position_embeddings": 64, "eos_token_id": 1, "bos_token_id": 1,
        },
    ),
    "opt": ("OPT", {**_LLAMA_LIKE, "ffn_dim": 48, "word_embed_proj_dim": 32}),
    "opt-projected": (
        "OPT",
        {**_LLAMA_LIKE, "ffn_dim": 48, "word_embed_proj_dim": 16, "do_layer_norm_before": False},
    ),
    "falcon": ("Falcon", {**_FALCON, "alibi": False}),
    "falcon-alibi": (
        "Falcon",
        {**_FALCON, "alibi": True, "new_decoder_architecture": False, "multi_query": False,
         "parallel_attn": False},
    ),
    "mpt-alibi": (
        "Mpt",
        {"vocab_size": PADDED, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 64,
         "eos_token_id": 1},
    ),
    "mixtral": ("Mixtral", {**_LLAMA_LIKE, "num_local_experts": 4}),
    "qwen2-moe": ("Qwen2Moe", {**_LLAMA_LIKE, **_SHARED}),
    "olmoe": ("Olmoe", {**_LLAMA_LIKE, "num_experts": 4, "num_experts_per_tok": 2}),
    "deepseek-v3": ("DeepseekV3", {**_LLAMA_LIKE, **_LATENT}),
    "gpt-oss": ("GptOss", {**_LLAMA_LIKE, **_HEADS, "num_local_experts": 4, "rope_parameters": {
        "rope_type": "default", "rope_theta": 1e4}}),
    "granite-divided": ("Granite", {**_LLAMA_LIKE, "logits_scaling": 2.0}),
    "cohere-scaled": ("Cohere", {**_LLAMA_LIKE, "logit_scale": 0.25}),
}  # fmt: skip
"""Class name without its ending, and config fields."""

STATEFUL: dict[str, tuple[str, dict[str, object]]] = {
    "qwen3-next": (
        "Qwen3Next",
        {**_LLAMA_LIKE, **_SHARED, "head_dim": 8, "linear_num_value_heads": 4,
         "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
         "layer_types": ["linear_attention", "full_attention"]},
    ),
    "lfm2": ("Lfm2", {**_LLAMA_LIKE, "layer_types": ["conv", "full_attention"]}),
    "mamba": (
        "Mamba",
        {"vocab_size": 30, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4,
         "eos_token_id": 1, "pad_token_id": 0},
    ),
    "rwkv": (
        "Rwkv",
        {"vocab_size": 30, "hidden_size": 32, "num_hidden_layers": 2, "context_length": 64,
         "eos_token_id": 1, "bos_token_id": 1},
    ),
}  # fmt: skip
"""Models that keep more than keys and values."""


def plain(name: str, **config: object) -> PreTrainedModel:
    """Random weights, norms and biases included, from a generator of its own; in train mode, as a config may ask."""
    kind, fields = {**SPECS, **STATEFUL}[name]
    ending = "TextConfig" if kind == "Gemma3" else "Config"
    head = "LMHeadModel" if kind == "GPT2" else "ForCausalLM"
    made: PretrainedConfig = getattr(hf, kind + ending)(**{**fields, **config})
    model: PreTrainedModel = getattr(hf, kind + head)(made).float().train()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            drawn = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() >= 2:
                sharpened = any(part in parameter_name for part in ("lm_head", "embed_out"))
                scale = 3.0 if sharpened else 1.0
                parameter.copy_(scale * drawn * parameter.shape[-1] ** -0.5)
            else:  # norms start at 1; what transformers draws comes from torch's own generator
                start = 1.0 if bool((parameter == 1).all()) else 0.0
                parameter.copy_(start + 0.1 * drawn)
    return model


def loaded(name: str, **config: object) -> LoadedModel:
    """As a loaded model runs: by our own forward where the architecture has one."""
    return with_own_forward(freeze(plain(name, **config), tiny.tokenizer(), Accelerator(cpu=True)))
