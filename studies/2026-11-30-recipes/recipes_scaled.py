"""The built-in task's proxy and gold as functions that a spec can name: prompts and completions in, numbers out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from kltune.rewards.learned import LearnedReward
from kltune.spec.model import ModelSpec
from kltune.tasks.kitchen import task as kitchen
from kltune.tasks.kitchen.foods import BY_NAME
from kltune.tasks.kitchen.gold import rubric
from kltune.tasks.protocol import Prompt
from kltune.trainer.encode import PromptEncoder


def proxy(
    prompts: Sequence[str], completions: Sequence[str], completion_ids: Sequence[Sequence[int]]
) -> list[float]:
    """The shipped reward model's score of each completion, in its own unit; it reads the policy's tokens."""
    del completions
    encode, reward = _encoder(), _reward()
    asked = [encode(Prompt(id="", text=text)) for text in prompts]
    return reward.score_tokens(
        [[*head, *tail] for head, tail in zip(asked, completion_ids, strict=True)]
    )


def gold(
    completions: Sequence[str], completion_ids: Sequence[Sequence[int]], food: Sequence[str]
) -> list[float]:
    """The cook's rubric on each answer; an answer has ended where its last token is the end of text."""
    end = _tokenizer().eos_token_id
    return [
        rubric(text, BY_NAME[name], ended=bool(ids) and ids[-1] == end)
        for text, ids, name in zip(completions, completion_ids, food, strict=True)
    ]


@cache
def _tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(kitchen.BASE)


@cache
def _encoder() -> PromptEncoder:
    return PromptEncoder(_tokenizer(), ModelSpec(base="builtin:kitchen"))


@cache
def _reward() -> LearnedReward:
    return LearnedReward.load(kitchen.REWARD)
