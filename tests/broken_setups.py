"""Set-ups that are broken on purpose, by the name of the line of `kltune check` that must catch each.

``prepare`` breaks what is loaded (tokenizer, prompts, scorers), ``patch`` the trainer's own code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from kltune.grade import Grade
from kltune.launch.assemble import Ground
from kltune.spec.model import ModelSpec
from kltune.tasks.protocol import Sample, Scorer
from kltune.trainer import evaluate, logprobs, measure, train_step, update
from kltune.trainer.bank import Bank
from kltune.trainer.data import EncodedPrompts, TaskData, encode_all
from kltune.trainer.encode import PaddedPrompts, PromptEncoder
from kltune.trainer.logprobs import Hidden, Scoring
from kltune.trainer.parts import BankParts
from kltune.trainer.rollout import Rollout, rollout
from kltune.trainer.soundness import drawn


def _as_it_is(ground: Ground) -> Ground:
    return ground


def _nothing(_patch: pytest.MonkeyPatch, _bank: Bank) -> None:
    return


@dataclass(frozen=True)
class Broken:
    """One fault: ``line`` is the name that must have ``grade``."""

    line: str
    grade: Grade = Grade.FAIL
    prepare: Callable[[Ground], Ground] = _as_it_is
    patch: Callable[[pytest.MonkeyPatch, Bank], None] = _nothing
    slots: int = 1
    """Of the bank that it needs."""


def shift_logprobs(patch: pytest.MonkeyPatch, _bank: Bank) -> None:
    """Every token is scored by the hidden state one position before the one that predicts it."""
    own = logprobs.hidden_states

    def shifted(*args: object) -> Hidden:
        found = own(*args)  # type: ignore[arg-type]
        return Hidden(found.states_KNTD.roll(1, dims=2), found.head)

    for module in (measure, logprobs, update):
        patch.setattr(module, "hidden_states", shifted, raising=False)


def count_padding(patch: pytest.MonkeyPatch, _bank: Bank) -> None:
    """The mask is true up to the end of the longest completion."""

    def counted(rows: Rollout) -> Rollout:
        return replace(rows, mask_KNT=torch.ones_like(rows.mask_KNT))

    _patch_rollout(patch, counted)


def count_prompt(patch: pytest.MonkeyPatch, _bank: Bank) -> None:
    """A completion begins with the last token of its prompt."""

    def counted(rows: Rollout) -> Rollout:
        last = rows.prompts.ids[None, :, -1:]
        first = torch.ones_like(last)
        return Rollout(
            PaddedPrompts(rows.prompts.ids[:, :-1], rows.prompts.mask[:, :-1]),
            torch.cat([last, rows.ids_KNT], dim=2),
            torch.cat([first.bool(), rows.mask_KNT], dim=2),
            torch.cat([0.0 * first, rows.sampler_logprobs_KNT], dim=2),
            rows.ended_KN,
        )

    _patch_rollout(patch, counted)


def _patch_rollout(patch: pytest.MonkeyPatch, change: Callable[[Rollout], Rollout]) -> None:
    def broken(*args: object) -> Rollout:
        return change(rollout(*args))  # type: ignore[arg-type]

    for module in (train_step, evaluate, drawn):
        patch.setattr(module, "rollout", broken)


def drop_out(ground: Ground) -> Ground:
    """Functional dropout in attention, as in a model that stayed in training mode."""
    model = ground.loaded.model
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.2
    model.train()
    return replace(ground, loaded=replace(ground.loaded, fused=None))


def heat(patch: pytest.MonkeyPatch, _bank: Bank) -> None:
    """Trained at another temperature than was drawn at."""

    def hot(parts: BankParts) -> Scoring:
        return Scoring(1.4, only_valid=parts.settings.compact)

    patch.setattr(BankParts, "scoring", property(hot))


def begin_twice(ground: Ground) -> Ground:
    """The template writes a BOS, and the tokenizer another."""
    tokenizer = _copy(ground)
    tokenizer.bos_token = tokenizer.convert_ids_to_tokens(5)
    data = _with_ids(ground.data, lambda ids: (5, 5, *ids))
    return replace(ground, loaded=replace(ground.loaded, tokenizer=tokenizer), data=data)


def pad_wrongly(ground: Ground) -> Ground:
    """Padding is a word of the prompts."""
    return replace(ground, loaded=replace(ground.loaded, pad_id=ground.data.train.ids[0][-1]))


def swap_tokenizer(ground: Ground) -> Ground:
    """Of the same words in another order, and the reward model reads its ids as well."""
    tokenizer = _copy(ground)
    facts = json.loads(tokenizer.backend_tokenizer.to_str())
    vocabulary: dict[str, int] = facts["model"]["vocab"]
    special = set(tokenizer.all_special_ids)
    words = sorted(word for word, i in vocabulary.items() if i not in special)
    # A stride through the words moves every one of them.
    ids = [vocabulary[word] for word in words]
    moved = {w: ids[(7 * at + 3) % len(ids)] for at, w in enumerate(words)}
    assert len(set(moved.values())) == len(ids)
    facts["model"]["vocab"] = vocabulary | moved
    swapped = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(facts)),
        pad_token=tokenizer.pad_token,
        eos_token=tokenizer.eos_token,
        unk_token=tokenizer.unk_token,
        padding_side="left",
    )
    encoder = PromptEncoder(swapped, ModelSpec(base="builtin:kitchen"))
    data = ground.data
    data.proxy.encode_prompt = encoder  # type: ignore[attr-defined]
    encoded = replace(
        data,
        train=encode_all(encoder, data.train.prompts),
        select=encode_all(encoder, data.select.prompts),
    )
    return replace(ground, loaded=replace(ground.loaded, tokenizer=swapped), data=encoded)


def reward_of_others(ground: Ground) -> Ground:
    """The policy reads its own ids, the reward model those of another tokenizer."""
    proxy = ground.data.proxy
    own = proxy.encode_prompt  # type: ignore[attr-defined]
    proxy.encode_prompt = lambda prompt: list(reversed(own(prompt)))  # type: ignore[attr-defined]
    return ground


def use_other_reference(patch: pytest.MonkeyPatch, bank: Bank) -> None:
    """The frozen base is read with the adapter of another slot."""
    own, stack = logprobs.hidden_states, bank.parts.stack
    generator = torch.Generator().manual_seed(1)
    stack.flat_KP[1] = 0.05 * torch.randn(stack.num_parameters, generator=generator)

    def other(loaded: object, used: object, view: object, rows: object) -> Hidden:
        return own(loaded, used, stack.view((1,)) if view is None else view, rows)  # type: ignore[arg-type]

    for module in (measure, logprobs):
        patch.setattr(module, "hidden_states", other)


@dataclass(frozen=True)
class Copied:
    """The proxy under another name."""

    of: Scorer
    name: str = "judge"

    def __call__(self, samples: Sequence[Sample]) -> Sequence[float | None]:
        return self.of(samples)


def judge_by_proxy(ground: Ground) -> Ground:
    """Gold is the proxy."""
    return replace(ground, data=replace(ground.data, gold=Copied(ground.data.proxy)))


def _copy(ground: Ground) -> PreTrainedTokenizerFast:
    inner = Tokenizer.from_str(ground.loaded.tokenizer.backend_tokenizer.to_str())
    own = ground.loaded.tokenizer
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token=own.pad_token,
        eos_token=own.eos_token,
        unk_token=own.unk_token,
        padding_side="left",
    )


def _with_ids(data: TaskData, change: Callable[[tuple[int, ...]], tuple[int, ...]]) -> TaskData:
    def changed(part: EncodedPrompts) -> EncodedPrompts:
        return EncodedPrompts(part.prompts, tuple(change(ids) for ids in part.ids))

    return replace(data, train=changed(data.train), select=changed(data.select))


BROKEN = {
    "shifted log-probs": Broken("logprobs", patch=shift_logprobs),
    "padding counted": Broken("mask", patch=count_padding),
    "prompt tokens counted": Broken("mask", patch=count_prompt),
    "dropout on": Broken("dropout", prepare=drop_out),
    "other temperature": Broken("temperature", patch=heat),
    "double BOS": Broken("bos", prepare=begin_twice),
    "wrong pad": Broken("pad", prepare=pad_wrongly),
    "swapped tokenizer": Broken("tokenizer", Grade.WARN, prepare=swap_tokenizer),
    "reward model of another tokenizer": Broken("tokenizer", prepare=reward_of_others),
    "reference with another adapter": Broken("start_kl", patch=use_other_reference, slots=2),
    "gold = proxy": Broken("gold", prepare=judge_by_proxy),
}
"""Overlapping splits need no model: see tests/check/test_splits.py."""
