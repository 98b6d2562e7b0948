"""What a task is made of: prompts in three splits, a proxy to train on, a gold to judge by.

Torch-free: a task deals in text and plain numbers only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question.

    ``text`` is what the user says (before any chat template); ``columns`` holds whatever
    else the scorers need (the food, a ground truth, ...) and is never shown to the policy.
    """

    id: str
    text: str
    columns: Mapping[str, Any] = field(default_factory=dict[str, Any])
    messages: tuple[Mapping[str, Any], ...] = ()
    """The turns ``{role, content}`` of a prompt that is a conversation; ``text`` then holds them in words."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion of one prompt.

    ``text`` is decoded without special tokens. ``token_ids`` are the valid completion
    tokens, up to and including the first stop token, or the token that completes a stop
    string (``text`` ends before that string). ``ended`` is false for a completion cut at the
    length limit.
    """

    prompt: Prompt
    text: str
    token_ids: tuple[int, ...]
    ended: bool
    thought: str = ""
    """What came before the answer (``model.answer_after``): shown to people, never judged."""


class Scorer(Protocol):
    """Judges completions: one number per sample, higher is better, in input order.

    NaN means that a completion can't be scored: it takes no part in training; gold must always score.
    """

    @property
    def name(self) -> str:
        """How reports and trackers call this scorer."""
        ...

    def __call__(self, samples: Sequence[Sample]) -> Sequence[float | None]:
        """Score ``samples``; the result has the same length and order."""
        ...


@dataclass(frozen=True, slots=True)
class Splits:
    """Prompts by role: ``train`` for RL, ``select`` for gold during trials, ``test`` for confirmation."""

    train: tuple[Prompt, ...]
    select: tuple[Prompt, ...]
    test: tuple[Prompt, ...]
    notes: tuple[str, ...] = ()
    """How they came about where that is not plain: rows left out, repeats. Sentences."""
    doubts: tuple[str, ...] = ()
    """What is probably not meant: near-duplicates between splits. Sentences."""
