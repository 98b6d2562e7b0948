"""A model and the length of its rows in, how many rows are best learned from at once out.

A first guess from shapes, so that it is the same on every run; what does not fit all the same is
found by `MicroBatch`, which shrinks.
"""

from __future__ import annotations

from torch import nn

from kltune.spec.trainer import TrainerSpec
from kltune.trainer.adapted_layers import linear_layers, size_of

LEAST_BYTES = 192 * 2**20
"""Activations that are always allowed: about half of what the imports alone take."""
WEIGHTS_FACTOR = 2
"""And as much as the frozen weights this many times over: smaller pieces of a large model save little in all."""


def activation_bytes_per_token(body: nn.Module) -> int:
    """What a token keeps for the backward pass: inputs and outputs of every linear layer.

    Norms and attention keep less than these; the head's logits are never kept (head.py).
    """
    return sum(
        sum(size_of(layer) or ()) * next(layer.parameters()).element_size()
        for _, layer in linear_layers(body)
    )


def rows_at_once(body: nn.Module, trainer: TrainerSpec, prompt_width: int) -> int:
    """Rows of a step whose activations are kept together on a CPU: all of them, or so many whole groups.

    ``prompt_width``: tokens of the longest prompt. All rows where an update needs more than its own
    groups at once (reinforce, ppo, several updates per rollout).
    """
    if not learns_by_groups(trainer):
        return trainer.rows
    weights = sum(p.numel() * p.element_size() for p in body.parameters())
    room = max(LEAST_BYTES, WEIGHTS_FACTOR * weights)
    row = activation_bytes_per_token(body) * (prompt_width + trainer.max_new_tokens)
    group = trainer.group_size
    fitting = [
        groups * group
        for groups in range(1, trainer.prompts + 1)
        if trainer.prompts % groups == 0 and groups * group * row <= room
    ]
    return max(fitting, default=group)


def learns_by_groups(trainer: TrainerSpec) -> bool:
    """Whether a group's advantages need no other group, and one update takes the whole rollout."""
    is_one_update = trainer.epochs == trainer.minibatches == 1
    return is_one_update and trainer.algorithm in ("grpo", "dr-grpo", "rloo")
