"""(seed, purpose, step, row) in, random numbers out: every draw of a trial has an address.

A draw depends on its address alone, so neither the number of slots, nor a refill, nor
dropping finished rows, nor a resume changes what a trial sees (common random numbers,
design.md §3). The generator is numpy's Philox: counter-based, so an address is a
counter and streams of different addresses never overlap.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class Purpose(IntEnum):
    """What a draw is for; part of its address."""

    ROLLOUT = 1
    EVALUATION = 2
    SCALE = 3
    ORDER = 4
    ADAPTER = 5
    COMPARISON = 6
    MINIBATCH = 7
    AUDIT = 8
    PREVIEW = 9


def generator(seed: int, purpose: Purpose, step: int = 0, row: int = 0) -> np.random.Generator:
    """The stream at one address."""
    philox = np.random.Philox(key=[seed, int(purpose)], counter=[0, row, step, 0])
    return np.random.Generator(philox)


def uniforms(
    seed: int, purpose: Purpose, step: int, num_rows: int, length: int
) -> NDArray[np.float32]:
    """``[num_rows, length]`` numbers in [0, 1); row i does not depend on num_rows, nor its start on length."""
    rows = [
        generator(seed, purpose, step, row).random(length, dtype=np.float32)
        for row in range(num_rows)
    ]
    return np.stack(rows)


def prompt_indices(seed: int, step: int, num_prompts: int, per_step: int) -> list[int]:
    """Which prompts step ``step`` (from 0) uses: passes over a fresh permutation in each epoch.

    Every trial of a seed sees the same prompts in the same order.
    """
    first = step * per_step
    indices: list[int] = []
    while len(indices) < per_step:
        epoch, offset = divmod(first + len(indices), num_prompts)
        order = generator(seed, Purpose.ORDER, step=epoch).permutation(num_prompts)
        take = order[offset : offset + per_step - len(indices)]
        indices.extend(int(i) for i in take)
    return indices
