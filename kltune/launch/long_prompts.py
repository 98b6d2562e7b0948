"""A task and a length limit in, the task without longer prompts out, and how many those were."""

from __future__ import annotations

from dataclasses import replace

from kltune.errors import SpecError
from kltune.spec.prompts import SPLIT_NAMES
from kltune.spec.study import StudySpec
from kltune.tasks.prompts import digest_prompts
from kltune.tasks.prompts_splits import MIN_PROMPTS, key_of
from kltune.tasks.protocol import Prompt
from kltune.tasks.registry import Task
from kltune.trainer.encode import PromptEncoder
from kltune.trainer.sources import ModelSource
from kltune.trainer.tokenizer import load_tokenizer


def without_long(task: Task, spec: StudySpec, source: ModelSource) -> Task:
    """The task as ``trainer.long_prompts`` asks: nothing is ever cut.

    Raises:
        SpecError: too few are left, or a prompt that can't be encoded.
        EnvironmentMissingError: the hub does not give the tokenizer.
    """
    limit = spec.trainer.max_prompt_tokens
    if spec.trainer.long_prompts != "drop" or limit is None:
        return task
    encoder = PromptEncoder(load_tokenizer(spec.model, source), spec.model)
    kept: dict[str, tuple[Prompt, ...]] = {}
    notes: list[str] = []
    for name in SPLIT_NAMES:
        prompts: tuple[Prompt, ...] = getattr(task.splits, name)
        kept[name] = tuple(p for p in prompts if len(encoder.ids(p)) <= limit)
        dropped = len(prompts) - len(kept[name])
        told = f"{dropped:,} of {len(prompts):,} {name} prompts have more than {limit} tokens"
        if len({key_of(prompt.text) for prompt in kept[name]}) < MIN_PROMPTS:
            raise SpecError(
                f"trainer.long_prompts: {told}, and {len(kept[name])} are left (at least {MIN_PROMPTS} are "
                "needed); raise trainer.max_prompt_tokens"
            )
        if dropped:
            notes.append(f"dropped: {told} (trainer.long_prompts)")
    splits = replace(task.splits, **kept, notes=(*task.splits.notes, *notes))
    digests = {name: digest_prompts(prompts) for name, prompts in kept.items()}
    return replace(task, splits=splits, digests=digests)
