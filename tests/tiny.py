"""A tiny random Llama with a real tokenizer, a task about it, and banks of it: what the trainer's tests run on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from kltune.metrics.record import RewardScale
from kltune.spec.control import ControlSpec
from kltune.spec.model import ModelSpec
from kltune.spec.study import EvaluateSpec
from kltune.spec.trainer import TrainerSpec
from kltune.spec.trial import BetaUnit, KLUnit, TrialSpec
from kltune.tasks.protocol import Prompt, Sample
from kltune.trainer import train_step
from kltune.trainer.bank import Bank
from kltune.trainer.batch import Batch
from kltune.trainer.data import EncodedPrompts, TaskData, encode_all
from kltune.trainer.encode import PromptEncoder
from kltune.trainer.model import LoadedModel, freeze, with_own_forward
from kltune.trainer.parts import BankSettings
from kltune.trainer.rollout import Rollout
from kltune.trainer.slot import SlotState

MODEL = ModelSpec(base="builtin:tiny", rank=4)


def tokenizer(num_words: int = 28) -> PreTrainedTokenizerFast:
    words = ["<pad>", "<eos>", *(f"w{i}" for i in range(num_words))]
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="w0"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="w0",
        padding_side="left",
    )


def llama(seed: int = 0, vocabulary: int = 30, scale: float = 3.0) -> LlamaForCausalLM:
    """Random weights from a generator of its own; ``scale`` sharpens the head so that distributions differ."""
    config = LlamaConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=48,
        vocab_size=vocabulary,
        max_position_embeddings=128,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config).float()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2:
                drawn = torch.randn(parameter.shape, generator=generator)
                parameter.copy_(
                    drawn * (scale if "lm_head" in name else 1.0) * parameter.shape[1] ** -0.5
                )
    return model


def loaded(seed: int = 0, own_forward: bool = False, **kwargs: float) -> LoadedModel:
    """``own_forward``: by kltune's forward of the Llama family, as a loaded model runs; else by transformers'."""
    model = freeze(llama(seed, **kwargs), tokenizer(), Accelerator(cpu=True))
    return with_own_forward(model) if own_forward else model


@dataclass(frozen=True)
class CountWord:
    """A scorer: how often a word occurs, less a little for length."""

    word: str
    name: str = "count"

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        return [s.text.split().count(self.word) - 0.01 * len(s.token_ids) for s in samples]


PROMPTS = tuple(
    Prompt(f"p{i}", " ".join(f"w{(i * 5 + j) % 28}" for j in range(2 + i % 4))) for i in range(12)
)


def encoded(model: LoadedModel, prompts: Sequence[Prompt] = PROMPTS) -> EncodedPrompts:
    return encode_all(PromptEncoder(model.tokenizer, MODEL), prompts)


def task_data(model: LoadedModel) -> TaskData:
    return TaskData(
        train=encoded(model, PROMPTS[:8]),
        select=encoded(model, PROMPTS[8:]),
        proxy=CountWord("w3"),
        gold=CountWord("w4", name="gold"),
    )


def settings(*, compact: bool = True, **trainer: object) -> BankSettings:
    spec = {
        "steps": 10,
        "prompts": 2,
        "group_size": 4,
        "max_new_tokens": 6,
        "learning_rate": 1e-2,
        **trainer,
    }
    return BankSettings(
        trainer=TrainerSpec.model_validate(spec),
        evaluate=EvaluateSpec(every=5, prompts=4, samples=2, keep=2),
        control=ControlSpec(),
        kl_unit=KLUnit.TOKEN,
        beta_unit=BetaUnit.REWARD,
        scale=RewardScale(sigma=0.5, std=0.8, mean=0.0, num_groups=8, mean_tokens=5.0),
        compact=compact,
    )


def bank(
    num_slots: int,
    *,
    compact: bool = True,
    seed: int = 0,
    own_forward: bool = False,
    **trainer: object,
) -> Bank:
    model = loaded(seed, own_forward)
    return Bank(model, task_data(model), settings(compact=compact, **trainer), MODEL, num_slots)


def trial(**fields: object) -> TrialSpec:
    return TrialSpec.model_validate(
        {"beta": 0.1, "penalty": "k2-loss", "learning_rate": 1e-2, "seed": 0, **fields}
    )


def next_rollout(bank: Bank) -> Rollout:
    """The rollout of slot 0's next step: draws are keyed, so that the step itself draws the same."""
    states: dict[int, SlotState] = bank._states  # pyright: ignore[reportPrivateUsage]
    return train_step._roll_out(bank.parts, (0,), states)  # pyright: ignore[reportPrivateUsage]


def next_batch(bank: Bank) -> Batch:
    """The same with its scores."""
    states: dict[int, SlotState] = bank._states  # pyright: ignore[reportPrivateUsage]
    return train_step._score(bank.parts, (0,), states, next_rollout(bank))  # pyright: ignore[reportPrivateUsage]
