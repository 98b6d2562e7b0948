"""The work that every contender is given, and its useful floating-point operations: plain numbers, no torch.

Counted, per step, with N weights in the linear layers of the body (no embedding), H in the head,
and two operations per weight and token forward:

- rollout: 2N for every token that is read (prompt and completion but its last token), 2H for every
  completion token;
- reference: 2N for every token but the last, 2H for every completion token;
- update: 4N and 4H instead: forward, and backward to the activations only, for the base is frozen.

Attention, adapters, norms and softmax are left out, so the shares are a little low (attention and
adapters, which kltune.trainer.flops counts too, add 3 to 12 % on the models here). Work that a trainer repeats (old log-probs, checkpointing) or does on padding and
on prompt positions in the head is not useful and does not count.
"""

from __future__ import annotations

from dataclasses import dataclass

GROUP = 8
"""Completions per prompt, in every measurement."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Weights of a model that multiply each token."""

    body: int
    """N: linear layers of all transformer layers."""
    head: int
    """H: vocabulary x width, tied to the embedding or not."""


@dataclass(frozen=True, slots=True)
class Work:
    """One step of one trial."""

    completions: int
    tokens: int
    """Per completion, forced."""

    @property
    def prompts(self) -> int:
        """Different prompts of a step."""
        return self.completions // GROUP


@dataclass(frozen=True, slots=True)
class Flops:
    """Useful operations of one trial-step by phase."""

    rollout: float
    reference: float
    update: float

    @property
    def total(self) -> float:
        """All of a trial-step."""
        return self.rollout + self.reference + self.update

    @property
    def scoring(self) -> float:
        """The reference's forward and the policy's forward and backward."""
        return self.reference + self.update


def count_flops(shape: Shape, work: Work, prompt_tokens: float, *, prompts_once: bool) -> Flops:
    """Count a trial-step. ``prompt_tokens``: mean length of a prompt, in tokens.

    ``prompts_once``: a group's prompt is read once instead of once per completion.
    """
    readings = work.prompts if prompts_once else work.completions
    read = readings * prompt_tokens + work.completions * (work.tokens - 1)
    predicted = work.completions * work.tokens
    forward = 2.0 * (shape.body * read + shape.head * predicted)
    return Flops(rollout=forward, reference=forward, update=2.0 * forward)
