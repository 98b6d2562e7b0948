"""A mask in, weights per token out: how the token losses of one update become one number.

Shapes: N sequences of the whole update of one slot, T completion tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kltune.spec.algorithm import Aggregation


def token_weights(mask_NT: Tensor, aggregation: Aggregation, max_new_tokens: int) -> Tensor:
    """Weights whose sum with the token values is the aggregated value (kl-reference.md §3.2).

    0 at masked tokens, float64. Taken over the whole update, so that its micro-batches add up.
    A completion without a valid token is no completion: numerator and denominator see one mask.
    """
    valid_NT = mask_NT.to(torch.float64)
    lengths_N1 = valid_NT.sum(dim=-1, keepdim=True)
    sequences = (lengths_N1 > 0).sum().clamp(min=1)
    match aggregation:
        case "token-mean":
            return valid_NT / valid_NT.sum().clamp(min=1)
        case "seq-mean-token-mean":
            return valid_NT / (lengths_N1.clamp(min=1) * sequences)
        case "seq-mean-token-sum":
            return valid_NT / sequences
        case "constant":
            return valid_NT / (sequences * max_new_tokens)


def weighted_sum(values_NT: Tensor, weight_NT: Tensor) -> Tensor:
    """The aggregated value of these rows, in the values' precision.

    Values without weight are selected away, not multiplied (NaN x 0 is NaN).
    """
    weight_NT = weight_NT.to(values_NT.dtype)
    return (values_NT.where(weight_NT != 0, 0.0) * weight_NT).sum()
