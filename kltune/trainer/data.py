"""A task's prompts and scorers in, encoded prompts and plain samples out: what the bank needs of a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from kltune.errors import SpecError
from kltune.tasks.protocol import Prompt, Sample, Scorer
from kltune.trainer.encode import PaddedPrompts, PromptEncoder, pad_left, refuse_unknown
from kltune.trainer.model import LoadedModel
from kltune.trainer.rollout import Rollout
from kltune.trainer.runnable import known_ids
from kltune.trainer.text_rules import text_rules


@dataclass(frozen=True, slots=True)
class EncodedPrompts:
    """Prompts with their token ids."""

    prompts: tuple[Prompt, ...]
    ids: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        """How many."""
        return len(self.prompts)

    @property
    def width(self) -> int:
        """Tokens of the longest."""
        return max(len(row) for row in self.ids)

    def pad(
        self, indices: Sequence[int], pad_id: int, device: torch.device, *, full_width: bool
    ) -> PaddedPrompts:
        """Left-padded rows of some prompts; ``full_width``: to the longest of all, so that shapes stay fixed."""
        rows = [self.ids[i] for i in indices]
        return pad_left(rows, pad_id, device, self.width if full_width else None)


def encode_all(encoder: Callable[[Prompt], list[int]], prompts: Sequence[Prompt]) -> EncodedPrompts:
    """Encode every prompt once."""
    return EncodedPrompts(tuple(prompts), tuple(tuple(encoder(prompt)) for prompt in prompts))


def encode_split(encoder: PromptEncoder, prompts: Sequence[Prompt], split: str) -> EncodedPrompts:
    """Encode every prompt of a split once; nothing is ever cut.

    Raises:
        SpecError: some are too long (how many, and the longest), or can't be encoded.
    """
    rows = tuple(tuple(encoder.ids(prompt)) for prompt in prompts)
    limit = encoder.max_tokens
    long = [i for i, row in enumerate(rows) if limit is not None and len(row) > limit]
    if long:
        worst = max(long, key=lambda i: len(rows[i]))
        raise SpecError(
            f"task.prompts: {len(long):,} of {len(rows):,} {split} prompts have more than {limit} tokens (the "
            f"longest, {prompts[worst].id!r}, has {len(rows[worst])}): the limit is trainer.max_prompt_tokens, or the "
            "model's own less max_new_tokens; shorten them, or give trainer.max_prompt_tokens with "
            "long_prompts: drop"
        )
    return EncodedPrompts(tuple(prompts), rows)


def with_text_rules(
    loaded: LoadedModel, stop: Sequence[str], answer_after: str | None
) -> LoadedModel:
    """The same model whose completions end at stop strings too, and have their answer after a marker.

    Raises:
        SpecError: a stop string is a token that the model has not.
    """
    rules = text_rules(loaded.tokenizer, stop, answer_after)
    refuse_unknown(loaded.tokenizer, rules.stop_ids, known_ids(loaded.model), "trainer.stop")
    stop_ids = tuple(sorted({*loaded.stop_ids, *rules.stop_ids}))
    return replace(loaded, text_rules=rules, stop_ids=stop_ids)


def spread_evenly(count: int, wanted: int) -> list[int]:
    """``wanted`` indices below ``count`` (or all), evenly spaced: the same for every trial of a study."""
    wanted = min(count, wanted)
    return [i * count // wanted for i in range(wanted)]


@dataclass(frozen=True, slots=True)
class TaskData:
    """Everything of a task that training and judging use."""

    train: EncodedPrompts
    select: EncodedPrompts
    proxy: Scorer
    gold: Scorer
    golds: Mapping[str, Scorer] = field(default_factory=dict[str, Scorer])
    """Further judgements by name, of the same completions as ``gold``."""

    def same_ids(self) -> int:
        """Select prompts that are a train prompt to the model, though their words are others."""
        train = dict(zip(self.train.ids, self.train.prompts, strict=True))
        pairs = zip(self.select.prompts, self.select.ids, strict=True)
        return sum(ids in train and train[ids].text != prompt.text for prompt, ids in pairs)


def samples_of(
    loaded: LoadedModel, rollout: Rollout, slot: int, prompts: Sequence[Prompt]
) -> list[Sample]:
    """The completions of one block of a rollout as text and valid ids; ``prompts``: one per row."""
    lengths = rollout.lengths_KN[slot].tolist()
    rows = rollout.ids_KNT[slot].tolist()
    ended = rollout.ended_KN[slot].tolist()
    valid = [tuple(row[:length]) for row, length in zip(rows, lengths, strict=True)]
    texts = loaded.tokenizer.batch_decode(valid, skip_special_tokens=True)
    parts = [loaded.text_rules.parts(text) for text in texts]
    return [
        Sample(prompt, answer, ids, bool(is_ended), thought)
        for prompt, (thought, answer), ids, is_ended in zip(
            prompts, parts, valid, ended, strict=True
        )
    ]
