"""A bank that trains every weight of a small Llama on one prompt with two tokens of five, and its exact policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import tiny
import torch
from accelerate import Accelerator
from numpy.typing import NDArray
from parity.two_tokens import VOCABULARY, Problem
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from kltune.metrics.record import RewardScale
from kltune.spec.model import ModelSpec
from kltune.tasks.protocol import Prompt, Sample
from kltune.trainer.bank import Bank
from kltune.trainer.data import TaskData
from kltune.trainer.keyed import Purpose
from kltune.trainer.model import LoadedModel, freeze

MODEL = ModelSpec(base="builtin:tiny", finetune="full")
PROMPT = Prompt("p", "w0 w1")
NO_CLIP = 1e9
"""A norm clip would change which point the expected gradient vanishes at."""
RATE, STEPS, ROWS, LAST = 5e-3, 240, 128, 80
"""The policies of the last steps are averaged: at a fixed rate each one still wanders around the point."""


@dataclass(frozen=True)
class Table:
    """A scorer: the reward of each pair of tokens."""

    reward_VV: Tensor
    name: str = "table"

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        pairs = torch.tensor([sample.token_ids for sample in samples])
        return self.reward_VV[pairs[:, 0], pairs[:, 1]].tolist()


def small_model() -> LoadedModel:
    """Every token may be emitted, none ends a completion."""
    config = LlamaConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        intermediate_size=32,
        vocab_size=VOCABULARY,
        max_position_embeddings=8,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config).float()
    generator = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                drawn = torch.randn(parameter.shape, generator=generator)
                parameter.copy_(drawn * parameter.shape[1] ** -0.5)
    loaded = freeze(model, tiny.tokenizer(VOCABULARY - 2), Accelerator(cpu=True))
    return replace(loaded, stop_ids=(10_000,))


@torch.no_grad()
def policy_of(bank: Bank, row: int | None = 0) -> Tensor:
    """Exact joint probabilities of the two tokens, ``[5, 5]``; none: the reference's."""
    loaded, stack = bank.parts.loaded, bank.parts.stack
    (prompt,) = bank.parts.data.train.ids
    ids = torch.tensor([[*prompt, first] for first in range(VOCABULARY)])
    positions = torch.arange(ids.shape[1]).expand_as(ids)
    with stack.use(None if row is None else stack.view((row,))):
        hidden = loaded.hidden(ids, torch.ones_like(ids), positions)
        logprobs = loaded.logits(hidden[:, -2:], 1.0).double().log_softmax(-1)
    return (logprobs[0, 0][:, None] + logprobs[:, 1]).exp()


def bank_of(given: Problem | None, **trainer: object) -> Bank:
    """A bank of one on the problem's reward; none: no reward, to ask for the reference."""
    loaded = small_model()
    prompts = tiny.encoded(loaded, (PROMPT,))
    table = Table(torch.zeros(VOCABULARY, VOCABULARY) if given is None else given.reward_VV)
    data = TaskData(prompts, prompts, table, table)
    settings = tiny.settings(max_new_tokens=2, max_grad_norm=NO_CLIP, **trainer)
    sigma = 1.0 if given is None else given.sigma
    scale = RewardScale(sigma=sigma, std=sigma, mean=0.0, num_groups=1, mean_tokens=2.0)
    return Bank(loaded, data, replace(settings, scale=scale), MODEL, 1)


def even_uniforms(
    seed: int, purpose: Purpose, step: int, num_rows: int, length: int
) -> NDArray[np.float32]:
    """Draws for two tokens that fill the unit square evenly: a golden-ratio lattice, shifted at random in each step.

    Every single draw is uniform, so every completion has its own probability; a batch only holds
    each about as often as expected. Rows are shuffled, so that those of a group are not neighbours.
    """
    assert length == 2
    generator = np.random.default_rng([seed, int(purpose), step])
    row = generator.permutation(num_rows)
    lattice = np.stack([row / num_rows, row * (5**0.5 - 1) / 2], axis=1) + generator.random(2)
    # rounding to float32 must not give 1
    return np.minimum(lattice % 1.0, 1 - 2**-24).astype(np.float32)


def trained(given: Problem, penalty: str, group_size: int = ROWS, **trainer: object) -> Tensor:
    """The mean policy of the last steps of a trial."""
    count = {"prompts": ROWS // group_size, "group_size": group_size}
    bank = bank_of(given, **count, **trainer)
    bank.admit(0, 0, tiny.trial(penalty=penalty, beta=given.beta, learning_rate=RATE), None)
    policies: list[Tensor] = []
    for step in range(1, STEPS + 1):
        (metrics,) = bank.train_step()
        assert metrics.is_finite
        if step > STEPS - LAST:
            policies.append(policy_of(bank))
    return torch.stack(policies).mean(0)
