"""Masked values in, averages out: the only place that averages; never over slots.

Shapes: K slots, N sequences per slot, T completion tokens.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def token_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Sum over all valid tokens / number of valid tokens, of the last two dims (design.md §3).

    ``[..., N, T] -> [...]``. Masked values are selected away, not multiplied (NaN x 0 is NaN).
    """
    total = values.where(mask, 0.0).sum(dim=(-2, -1))
    return total / mask.sum(dim=(-2, -1)).clamp(min=1)


def sequence_sum(values: Tensor, mask: Tensor) -> Tensor:
    """Sum over each sequence's valid tokens: ``[..., T] -> [...]``."""
    return values.where(mask, 0.0).sum(dim=-1)


def sequence_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over sequences of the sum over valid tokens: ``[..., N, T] -> [...]``, nats per sequence for a KL."""
    return sequence_sum(values, mask).mean(dim=-1)


def token_max(values: Tensor, mask: Tensor) -> Tensor:
    """Largest valid token's value, of the last two dims; 0 where none is valid: ``[..., N, T] -> [...]``."""
    largest = values.masked_fill(~mask, -math.inf).amax(dim=(-2, -1))
    return largest.where(mask.any(dim=-1).any(dim=-1), 0.0)


def group_std(values: Tensor) -> Tensor:
    """Standard deviation within each group with n - 1: ``[..., G] -> [...]``."""
    return torch.std(values, dim=-1, correction=1)
