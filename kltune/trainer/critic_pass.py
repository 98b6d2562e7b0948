"""One update's value loss in, the critics' gradients and optimiser steps out.

A critic is a row of trained weights and a linear head, clipped by their common norm.
Shapes: K active slots, B rows of one update, T completion tokens, H = D + 1 numbers of a head.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kltune.trainer.batch import Batch, Credit, Measured
from kltune.trainer.critic import values
from kltune.trainer.critic_loss import value_loss
from kltune.trainer.logprobs import Completions, hidden_states
from kltune.trainer.optimizer import AdamWSettings
from kltune.trainer.parts import BankParts


class CriticPass:
    """The value loss of one update; does nothing where there is no critic."""

    def __init__(
        self, parts: BankParts, batch: Batch, measured: Measured, credits: list[Credit]
    ) -> None:
        self._parts, self._batch = parts, batch
        self._measured, self._credits = measured, credits
        self.losses: list[float] = []
        self.head_grad_KH: Tensor | None = None
        if parts.critic is not None:
            self._rows = parts.rows.critics(batch.slots)
            self._view = parts.stack.view(self._rows)
            self._view.grad_KP.zero_()
            self._heads_KH = parts.critic.heads(batch.slots)
            self.head_grad_KH = torch.zeros_like(self._heads_KH)
            self.losses = [0.0] * len(batch.slots)

    def add(self, rows: Completions, index_KB: Tensor, weight_KBT: Tensor) -> None:
        """Add the value gradient of some rows."""
        if self.head_grad_KH is None:
            return
        parts, measured = self._parts, self._measured
        assert measured.values_KNT is not None, "ppo has a critic"
        hidden = hidden_states(parts.loaded, parts.stack, self._view, rows)
        fresh_KBT = values(hidden.states_KNTD, self._heads_KH, rows.mask_KNT)
        critic = parts.settings.trainer.value_function
        assert critic is not None, "ppo has a critic"
        losses: list[Tensor] = []
        for row in range(len(self._batch.slots)):
            returns_NT = self._credits[row].returns_NT
            assert returns_NT is not None, "ppo has returns"
            index_B = index_KB[row]
            losses.append(
                value_loss(
                    fresh_KBT[row],
                    measured.values_KNT[row, index_B],
                    returns_NT[index_B],
                    weight_KBT[row],
                    critic.value_clip,
                )
            )
            self.losses[row] += float(losses[-1].detach())
        total = torch.stack(losses).sum()
        self.head_grad_KH += torch.autograd.grad(total, self._heads_KH, retain_graph=True)[0]
        self._view.add_gradients(total)

    def collect(self) -> None:
        """Bring the gradients home."""
        if self.head_grad_KH is not None:
            self._parts.stack.collect(self._view, self._rows)


@dataclass(frozen=True, slots=True)
class Pull:
    """The gradient of one slot's critic."""

    row: int
    """Of its weights in the stack."""
    grad_H: Tensor
    norm: float
    """Of weights and head together."""


def critic_pull(parts: BankParts, head_grad_KH: Tensor | None, slot: int, row: int) -> Pull | None:
    """The gradient that waits for a slot's critic; ``row``: its place among the active slots."""
    if parts.critic is None or head_grad_KH is None:
        return None
    (weights_row,) = parts.rows.critics((slot,))
    grad_H = head_grad_KH[row]
    norms = [torch.linalg.vector_norm(g) for g in (parts.stack.grad_KP[weights_row], grad_H)]
    return Pull(weights_row, grad_H, math.hypot(*(float(norm) for norm in norms)))


def step_critic(parts: BankParts, pull: Pull, slot: int, policy_rate: float) -> None:
    """One optimiser step of a slot's critic, at its own rate or the policy's."""
    critic, trainer = parts.critic, parts.settings.trainer
    assert critic is not None, "ppo has a critic"
    assert trainer.value_function is not None, "ppo has a critic"
    rate = trainer.value_function.learning_rate or policy_rate
    settings = AdamWSettings(rate, trainer.weight_decay, trainer.max_grad_norm)
    weights_P, grad_P = parts.stack.flat_KP[pull.row], parts.stack.grad_KP[pull.row]
    parts.optimizer.step(pull.row, weights_P, grad_P, settings, pull.norm)
    critic.optimizer.step(slot, critic.head_KH[slot], pull.grad_H, settings, pull.norm)
