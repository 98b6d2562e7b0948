"""A shape and a device in, a random model, its prompts and banks of it out: what the GPU benchmark runs on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from kltune.metrics.record import RewardScale
from kltune.spec.control import ControlSpec
from kltune.spec.model import ModelSpec
from kltune.spec.study import EvaluateSpec
from kltune.spec.trainer import TrainerSpec
from kltune.spec.trial import BetaUnit, KLUnit, TrialSpec
from kltune.tasks.protocol import Prompt, Sample
from kltune.trainer.bank import Bank
from kltune.trainer.data import EncodedPrompts, TaskData
from kltune.trainer.model import LoadedModel, freeze, place, with_own_forward
from kltune.trainer.parts import BankSettings

GROUP = 8
BETA = 0.04
RANK, ALPHA = 8, 16
LEARNING_RATE = 1e-4
NEVER_ENDS = (10**9,)
"""Stop ids that no model has: every completion gets all its tokens."""
LOGIT_SPREAD = 4.0
"""Standard deviation of the random model's logits: about as sure of its next token as a trained one."""
EMBEDDING_SPREAD = 0.02
"""So small that what the layers add outweighs it: with a tied head it would foretell the same token again."""
GAIN = 0.6
"""Spread of a layer's outputs on normed inputs; that of queries and keys is twice as much, so that places matter."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A model of the Qwen2 family."""

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    inner: int
    vocabulary: int


HALF_B = Shape("Qwen2.5-0.5B shape", 896, 24, 14, 2, 4864, 151936)
TINY = Shape("tiny", 32, 2, 4, 2, 64, 96)


@dataclass(frozen=True, slots=True)
class Job:
    """What every contender is given."""

    shape: Shape
    device: str
    dtype: str
    """``bfloat16`` or ``float32``: of the base and of its matrix products."""
    completions: int
    tokens: int
    prompt_tokens: int

    @property
    def torch_dtype(self) -> torch.dtype:
        """The same for torch."""
        return torch.bfloat16 if self.dtype == "bfloat16" else torch.float32

    @property
    def precision(self) -> str:
        """The same for the trainer."""
        return "bf16" if self.dtype == "bfloat16" else "fp32"


class StubTokenizer:
    """Ids are all that is looked at here."""

    pad_token_id = 0
    eos_token_id = 1
    chat_template = None

    def get_vocab(self) -> dict[str, int]:
        """Every id of any model: none is left out of a distribution."""
        return {"last": 1 << 30}

    def batch_decode(self, rows: Sequence[Sequence[int]], **_: Any) -> list[str]:
        """No text."""
        return ["" for _ in rows]


class Distinct:
    """The share of distinct tokens: costs next to nothing and varies. Keeps the ids that it saw."""

    name = "distinct"

    def __init__(self) -> None:
        self.seen: list[list[tuple[int, ...]]] = []
        """One entry a call, which is one slot of one step."""

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        """Score token ids only."""
        self.seen = [*self.seen[-63:], [s.token_ids for s in samples]]
        return [distinct(s.token_ids) for s in samples]


def distinct(ids: Sequence[int]) -> float:
    """Share of different tokens, and a little for even ones, so that two completions rarely tie."""
    return len(set(ids)) / len(ids) + sum(1 for i in ids if i % 2 == 0) / (4 * len(ids))


def make_model(job: Job, seed: int = 0) -> Any:
    """Random weights, drawn on the device itself; the head is scaled so that logits spread as a trained model's."""
    shape = job.shape
    config = Qwen2Config(
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        intermediate_size=shape.inner,
        vocab_size=shape.vocabulary,
        max_position_embeddings=32768,
        rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    with torch.device(job.device):
        model: Any = AutoModelForCausalLM.from_config(config, dtype=job.torch_dtype)
    drawn = torch.Generator(job.device).manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = GAIN * shape.hidden**-0.5
            if "embed_tokens" in name:
                spread = EMBEDDING_SPREAD
            elif "q_proj" in name or "k_proj" in name:
                spread *= 2
            if parameter.dim() == 2 or name.endswith("bias"):
                parameter.normal_(0.0, spread, generator=drawn)
        model.model.norm.weight.fill_(LOGIT_SPREAD / (EMBEDDING_SPREAD * shape.hidden**0.5))
    return model.eval()


def make_prompts(job: Job, count: int, *, uneven: bool = False) -> EncodedPrompts:
    """Random ids, the same every time; ``uneven``: half to all of the prompt tokens instead of all."""
    rng = random.Random(0)
    least = max(1, job.prompt_tokens // 2) if uneven else job.prompt_tokens
    rows = [
        tuple(
            rng.randrange(2, job.shape.vocabulary)
            for _ in range(rng.randint(least, job.prompt_tokens))
        )
        for _ in range(count)
    ]
    return EncodedPrompts(tuple(Prompt(str(i), str(i)) for i in range(count)), tuple(rows))


def load(job: Job) -> LoadedModel:
    """The model as a spec's would be loaded, but that no completion ends before its last token."""
    accelerator = place(job.device, job.precision)
    loaded = with_own_forward(freeze(make_model(job), StubTokenizer(), accelerator))
    return replace(loaded, stop_ids=NEVER_ENDS)


def make_bank(
    loaded: LoadedModel, job: Job, slots: int, prompts: EncodedPrompts, reward: Distinct
) -> Bank:
    """An empty bank with the settings of a CUDA one: fixed shapes."""
    spec = ModelSpec.model_validate(
        {"base": "builtin:random", "rank": RANK, "alpha": ALPHA, "dtype": job.dtype}
    )
    trainer = {
        "steps": 10_000,
        "prompts": job.completions // GROUP,
        "group_size": GROUP,
        "max_new_tokens": job.tokens,
        "learning_rate": LEARNING_RATE,
        "precision": job.precision,
    }
    scale = RewardScale(sigma=0.1, std=0.1, mean=0.0, num_groups=1, mean_tokens=float(job.tokens))
    settings = BankSettings(
        trainer=TrainerSpec.model_validate(trainer),
        evaluate=EvaluateSpec(),
        control=ControlSpec(),
        kl_unit=KLUnit.TOKEN,
        beta_unit=BetaUnit.REWARD,
        scale=scale,
        compact=False,
    )
    return Bank(loaded, TaskData(prompts, prompts, reward, reward), settings, spec, slots)


def trial(seed: int, learning_rate: float = LEARNING_RATE) -> TrialSpec:
    """A k3 penalty in the loss."""
    given = {"beta": BETA, "penalty": "k3-loss", "learning_rate": learning_rate, "seed": seed}
    return TrialSpec.model_validate(given)
