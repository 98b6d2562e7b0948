"""Flat gradients in, new weights out: AdamW with every slot's own moments, step count and rate.

Equal to ``torch.optim.AdamW`` of each slot alone (1711.05101). One shared step count
would give a refilled slot a wrong bias correction. Shapes: K slots, P parameters of one row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


@dataclass(frozen=True, slots=True)
class AdamWSettings:
    """What one slot's optimiser is told in one step."""

    learning_rate: float
    weight_decay: float
    max_grad_norm: float


class StackedAdamW:
    """Moments of K rows of weights."""

    def __init__(self, num_slots: int, num_parameters: int, device: torch.device) -> None:
        """Zero moments, zero steps."""
        self.exp_avg_KP = torch.zeros(num_slots, num_parameters, device=device)
        self.exp_avg_sq_KP = torch.zeros(num_slots, num_parameters, device=device)
        self.num_steps_K = [0] * num_slots

    def reset(self, slot: int) -> None:
        """Forget a slot's past."""
        self.exp_avg_KP[slot].zero_()
        self.exp_avg_sq_KP[slot].zero_()
        self.num_steps_K[slot] = 0

    @torch.no_grad()
    def step(
        self,
        slot: int,
        weights_P: Tensor,
        grad_P: Tensor,
        settings: AdamWSettings,
        norm: float | None = None,
    ) -> float:
        """Clip the slot's gradient by norm and update its weights in place; return the norm before the clip.

        ``norm``: of the whole gradient that ``grad_P`` is a part of; none: its own. A non-finite
        one applies nothing: weights, moments and step count stay as they were.
        """
        if norm is None:
            norm = float(torch.linalg.vector_norm(grad_P))
        if not math.isfinite(norm):
            return norm
        # The same arithmetic as torch.nn.utils.clip_grad_norm_.
        grad_P = grad_P * min(1.0, settings.max_grad_norm / (norm + 1e-6))
        self.num_steps_K[slot] += 1
        steps = self.num_steps_K[slot]
        exp_avg_P, exp_avg_sq_P = self.exp_avg_KP[slot], self.exp_avg_sq_KP[slot]
        weights_P.mul_(1 - settings.learning_rate * settings.weight_decay)
        exp_avg_P.lerp_(grad_P, 1 - BETA1)
        exp_avg_sq_P.mul_(BETA2).addcmul_(grad_P, grad_P, value=1 - BETA2)
        denominator_P = exp_avg_sq_P.sqrt().div_(math.sqrt(1 - BETA2**steps)).add_(EPSILON)
        weights_P.addcdiv_(
            exp_avg_P, denominator_P, value=-settings.learning_rate / (1 - BETA1**steps)
        )
        return norm
