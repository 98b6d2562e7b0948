"""A vocabulary and a length in, every completion there is out: what need not be sampled where it is small.

Shapes: R completions, T tokens.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from kltune.trainer.model import LoadedModel

MAX_COMPLETIONS = 4096
"""Vocabulary to the power of the length limit up to which everything is enumerated."""


def is_small(vocabulary: int, max_new_tokens: int) -> bool:
    """Whether every completion can be looked at."""
    return vocabulary**max_new_tokens <= MAX_COMPLETIONS


def every_completion(loaded: LoadedModel, max_new_tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """Ids and mask, ``[R, T]``, and whether it ended, ``[R]``; the first stop token is the last valid one."""
    stops = set(loaded.stop_ids)
    going = [token for token in range(loaded.num_ids) if token not in stops]
    rows: list[tuple[int, ...]] = []
    for length in range(1, max_new_tokens):
        for start in itertools.product(going, repeat=length - 1):
            rows += [(*start, stop) for stop in sorted(stops) if stop < loaded.num_ids]
    for start in itertools.product(going, repeat=max_new_tokens - 1):
        rows += [(*start, last) for last in range(loaded.num_ids)]
    ids_RT = torch.full((len(rows), max_new_tokens), loaded.pad_id, dtype=torch.long)
    mask_RT = torch.zeros_like(ids_RT, dtype=torch.bool)
    for i, row in enumerate(rows):
        ids_RT[i, : len(row)] = torch.tensor(row)
        mask_RT[i, : len(row)] = True
    ended_R = torch.tensor([row[-1] in stops for row in rows])
    return ids_RT.to(loaded.device), mask_RT.to(loaded.device), ended_R.to(loaded.device)
