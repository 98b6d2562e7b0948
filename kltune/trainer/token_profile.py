"""Per-token KL and sampled ids in, where the KL lies and how the text repeats out. Pure functions of tensors.

Shapes: N sequences of one slot, T completion tokens.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from kltune.metrics.record import TokenProfile

MOST_BUCKETS = 32
"""Of a position profile: enough to see where, few enough to log at every step."""


def position_edges(length: int, most: int = MOST_BUCKETS) -> tuple[int, ...]:
    """Edges of at most ``most`` buckets over ``length`` positions, as equal as whole numbers allow."""
    buckets = max(1, min(length, most))
    return tuple(round(length * bucket / buckets) for bucket in range(buckets + 1))


def token_profile(kl_NT: Tensor, mask_NT: Tensor, length: int) -> TokenProfile:
    """Mean KL (nats per token) and valid tokens of each bucket of positions.

    ``length``: the longest completion allowed; it sets the buckets, so that all steps have the same.
    """
    edges = position_edges(length)
    kl_T = kl_NT.where(mask_NT, 0.0).double().sum(dim=0)[:length]
    widths = [end - first for first, end in itertools.pairwise(edges)]
    bucket_T = torch.arange(len(widths)).repeat_interleave(torch.tensor(widths))[: len(kl_T)]
    # Both at once: on a GPU every number that is looked at by itself waits for the device.
    both = torch.stack([kl_T, mask_NT.sum(dim=0).double()[:length]])
    sums = both.new_zeros(2, len(widths)).index_add_(1, bucket_T.to(both.device), both).tolist()
    kl, tokens = sums
    return TokenProfile(
        edges,
        tuple(total / count if count else 0.0 for total, count in zip(kl, tokens, strict=True)),
        tuple(int(count) for count in tokens),
    )


def token_quantiles(values_NT: Tensor, mask_NT: Tensor, shares: tuple[float, ...]) -> list[float]:
    """Quantiles (linear between neighbours) of the valid tokens' values; NaN where one of them is not finite."""
    values_M = values_NT[mask_NT].double()
    if not len(values_M):
        return [0.0] * len(shares)
    if not bool(torch.isfinite(values_M).all()):
        return [math.nan] * len(shares)
    ordered_M = values_M.sort().values
    found: list[float] = []
    for share in shares:
        place = share * (len(ordered_M) - 1)
        low = math.floor(place)
        high = min(low + 1, len(ordered_M) - 1)
        found.append(float(torch.lerp(ordered_M[low], ordered_M[high], place - low)))
    return found


def repeated_frac(ids_NT: Tensor, mask_NT: Tensor) -> float:
    """Share of the completions' trigrams of tokens that the same completion had before; 0 where none has three."""
    if ids_NT.shape[-1] < 3:
        return 0.0
    ids = ids_NT.long()
    valid = mask_NT[:, :-2] & mask_NT[:, 1:-1] & mask_NT[:, 2:]
    key_M = torch.arange(len(ids), device=ids.device)[:, None].expand_as(valid)[valid]
    if not len(key_M):
        return 0.0
    # Token by token, each key made small again: rows of four columns take ten times as long to tell apart.
    size = int(ids.max()) + 1
    for column in (ids[:, :-2], ids[:, 1:-1], ids[:, 2:]):
        key_M = (key_M * size + column[valid]).unique(return_inverse=True)[1]
    return 1.0 - (int(key_M.max()) + 1) / len(key_M)


def correlation(first_N: Tensor, second_N: Tensor) -> float:
    """Pearson's, over completions for which both are finite; NaN below three of them, or where one is constant."""
    known = torch.isfinite(first_N) & torch.isfinite(second_N)
    first, second = first_N[known].double(), second_N[known].double()
    if len(first) < 3:
        return math.nan
    first, second = first - first.mean(), second - second.mean()
    scale = float((first.square().sum() * second.square().sum()).sqrt())
    return float((first * second).sum()) / scale if scale > 0 else math.nan
