"""Logits and uniforms in, sampled tokens and their log-probs out."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK = 256
"""Tokens of the vocabulary that are summed before they are told apart."""
WHOLE_UP_TO = 2048
"""Vocabularies that are not cut."""


def sample(logits: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Inverse CDF: the first token whose cumulative probability exceeds u.

    ``[rows, V]`` logits at the sampling temperature, ``[rows]`` uniforms in [0, 1) to
    ``[rows]`` ids and their log-probs. A row that is not finite yields some valid id and
    a non-finite log-prob: the step that uses it says so.

    A large vocabulary is searched in two steps, chunk then token, so that the sums in
    float64 (in float32 a running sum is off by more than a rare token's probability) are
    few.
    """
    vocabulary = logits.shape[-1]
    top = logits.amax(dim=-1, keepdim=True)
    weights = (logits - top).exp_()
    width = vocabulary if vocabulary <= WHOLE_UP_TO else CHUNK
    if vocabulary % width:
        weights = F.pad(weights, (0, width - vocabulary % width))
    chunks = weights.unflatten(-1, (-1, width))
    ends = chunks.sum(-1, dtype=torch.float64).cumsum(-1)
    total = ends[:, -1:]
    threshold = uniforms.to(torch.float64)[:, None] * total
    chunk = _first_above(ends, threshold)
    before = F.pad(ends, (1, 0)).gather(-1, chunk)
    inside = chunks.gather(1, chunk[..., None].expand(-1, 1, width))[:, 0]
    token = chunk * width + _first_above(inside.cumsum(-1, dtype=torch.float64), threshold - before)
    token = token.clamp_(max=vocabulary - 1)
    logprob = logits.gather(-1, token) - top - total.log().to(logits.dtype)
    return token[:, 0], logprob[:, 0]


def _first_above(sums: Tensor, threshold: Tensor) -> Tensor:
    """First place whose running sum exceeds the threshold; where rounding leaves none, the last that adds anything."""
    last = torch.searchsorted(sums, sums[:, -1:].contiguous())
    place = torch.searchsorted(sums, threshold, right=True)
    return torch.minimum(place, last).clamp_(max=sums.shape[-1] - 1)
