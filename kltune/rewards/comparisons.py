"""Pairs of completions and their gold scores in, noisy "which is better" labels out. Torch-free."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from kltune.errors import SpecError


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two completions of one prompt, and which of them a judge called better."""

    prompt_ids: tuple[int, ...]
    a_ids: tuple[int, ...]
    b_ids: tuple[int, ...]
    a_is_better: bool


def noisy_labels(
    gold_a: Sequence[float], gold_b: Sequence[float], label_noise: float, seed: int
) -> list[bool | None]:
    """Say for each pair whether a is better: by gold, each label flipped with probability ``label_noise``.

    A tie gives None: a judge who sees no difference gives no label. Whether a pair is flipped
    depends on its place and the seed alone, so less noise flips a subset of the same pairs.
    """
    if not 0.0 <= label_noise < 0.5:
        raise SpecError(f"label_noise must be at least 0 and below 0.5, got {label_noise}")
    rng = random.Random(seed)
    draws = [rng.random() for _ in gold_a]
    return [
        None if a == b else (a > b) != (draw < label_noise)
        for a, b, draw in zip(gold_a, gold_b, draws, strict=True)
    ]


def labelled(
    pairs: Sequence[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]],
    labels: Sequence[bool | None],
) -> list[Comparison]:
    """Join (prompt ids, a ids, b ids) with their labels; ties are dropped."""
    return [
        Comparison(prompt_ids, a_ids, b_ids, label)
        for (prompt_ids, a_ids, b_ids), label in zip(pairs, labels, strict=True)
        if label is not None
    ]
