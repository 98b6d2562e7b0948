"""An evaluation's tokens in, the few at which the policy has moved farthest, with text around them, out.

Shapes: R completions, T tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kltune.metrics.record import TokenOutlier
from kltune.tasks.protocol import Sample

MOST = 10
"""Outliers of an evaluation."""
CONTEXT = 8
"""Tokens of text on either side."""
FLOOR = 1e-3
"""Exact KL (nats) that is rounding rather than training, in half precision too; below it a token is no outlier."""


def token_outliers(
    tokenizer: Any,
    samples: Sequence[Sample],
    columns_RT: tuple[Tensor, Tensor, Tensor],
    mask_RT: Tensor,
) -> tuple[TokenOutlier, ...]:
    """The at most ``MOST`` valid tokens with the largest exact KL, largest first; non-finite ones lead.

    ``columns_RT``: exact KL, log-prob of the policy and of the start, row by row of ``samples``.
    """
    exact_RT = columns_RT[0]
    # What is not finite ranks above everything that is: it is what a person must see first.
    rank_RT = exact_RT.nan_to_num(nan=math.inf, posinf=math.inf, neginf=math.inf)
    rank_M = rank_RT.masked_fill(~mask_RT, -math.inf).flatten()
    found = rank_M.topk(min(MOST, len(rank_M)))
    places = found.indices[found.values > FLOOR]
    if not len(places):
        return ()
    numbers = torch.stack([column.flatten()[places] for column in columns_RT]).tolist()
    width = exact_RT.shape[1]
    return tuple(
        _outlier(tokenizer, samples[place // width], place % width, values)
        for place, *values in zip(places.tolist(), *numbers, strict=True)
    )


def _outlier(
    tokenizer: Any, sample: Sample, position: int, values: Sequence[float]
) -> TokenOutlier:
    ids = list(sample.token_ids)

    def text(first: int, end: int) -> str:
        return str(tokenizer.decode(ids[max(0, first) : end], skip_special_tokens=False))

    kl, policy, reference = values
    return TokenOutlier(
        prompt_id=sample.prompt.id,
        position=position,
        token=text(position, position + 1),
        before=text(position - CONTEXT, position),
        after=text(position + 1, position + 1 + CONTEXT),
        kl=kl,
        policy_logprob=policy,
        reference_logprob=reference,
    )
