"""Values and returns in, the critic's loss and its explained variance out. One slot at a time.

Shapes: N sequences, T completion tokens.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kltune.trainer.aggregate import weighted_sum


def value_loss(
    values_NT: Tensor,
    old_values_NT: Tensor,
    returns_NT: Tensor,
    weight_NT: Tensor,
    value_clip: float | None,
) -> Tensor:
    """Half the squared error, aggregated by the weights of ``token_weights``.

    With a clip, the worse of it and of the error of the value held within +- ``value_clip`` of
    its estimate at rollout (PPO's baselines code). Whatever has no weight is not looked at.
    """
    valid_NT = weight_NT != 0
    values_NT, old_values_NT, returns_NT = (
        x.where(valid_NT, 0.0) for x in (values_NT, old_values_NT, returns_NT)
    )
    error_NT = (values_NT - returns_NT).square()
    if value_clip is not None:
        moved_NT = (values_NT - old_values_NT).clamp(-value_clip, value_clip)
        error_NT = torch.maximum(error_NT, (old_values_NT + moved_NT - returns_NT).square())
    return weighted_sum(error_NT / 2, weight_NT)


def explained_variance(values_NT: Tensor, returns_NT: Tensor, mask_NT: Tensor) -> float:
    """1 - Var(returns - values) / Var(returns) over the valid tokens; NaN where all returns are equal."""
    values, returns = values_NT.detach()[mask_NT], returns_NT.detach()[mask_NT]
    if returns.numel() == 0 or bool((returns == returns[0]).all()):
        return math.nan
    unexplained = (returns - values).var(correction=0)
    return float(1 - unexplained / returns.var(correction=0))
