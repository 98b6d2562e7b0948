"""A trial's adapter and the one that its base started with in, both as one adapter of the bare base out.

scale_1 B_1 A_1 + scale_2 B_2 A_2 = [scale_1 B_1, scale_2 B_2] [A_1; A_2]: ranks add up, alpha becomes the rank, and
a layer that only one of them has is filled up with zeros.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from kltune.errors import SpecError
from kltune.export.adapter import Adapter, BaseLayers

Pair = tuple[np.ndarray, np.ndarray]
"""A ``[R, I]`` and scaled B ``[O, R]`` of one layer, float32."""


def with_start(adapter: Adapter, base: BaseLayers, folder: Path) -> Adapter:
    """``adapter`` with the start adapter in ``folder`` before it.

    Raises:
        SpecError: the folder is damaged, or changes a layer outside the decoder body.
    """
    start = _start_pairs(folder, base.body)
    own = _own_pairs(adapter)
    start_rank = max(a.shape[0] for a, _ in start.values())
    tensors: dict[str, np.ndarray] = {}
    targets = tuple(dict.fromkeys([*adapter.targets, *start]))
    for target in targets:
        some_a, some_b = own[target] if target in own else start[target]
        num_in, num_out = some_a.shape[1], some_b.shape[0]
        first = _filled(start.get(target), start_rank, num_in, num_out)
        second = _filled(own.get(target), adapter.rank, num_in, num_out)
        tensors[f"{target}.lora_A.weight"] = np.concatenate([first[0], second[0]])
        tensors[f"{target}.lora_B.weight"] = np.concatenate([first[1], second[1]], axis=1)
    rank = start_rank + adapter.rank
    return replace(adapter, rank=rank, alpha=rank, targets=targets, tensors=tensors)


def start_note(folder: str) -> str:
    """What whoever loads it should know."""
    return (
        f"the adapter holds what training started from as well ({folder}, model.adapter), so that it belongs on the "
        "bare base; KL is to the base with that start adapter"
    )


def _start_pairs(folder: Path, body: str) -> dict[str, Pair]:
    """By names within the body."""
    from kltune.trainer.start_adapter import read_start

    found: dict[str, Pair] = {}
    prefix = f"{body}." if body else ""
    for layer in read_start(folder).layers:
        if not layer.name.startswith(prefix):
            raise SpecError(
                f"model.adapter: {folder} changes {layer.name}, outside the decoder body, so that one adapter can't "
                "hold it and the trial's: merge it into the base with peft first"
            )
        a, b = layer.a_RI.float().numpy(), layer.b_OR.float().numpy()
        found[layer.name.removeprefix(prefix)] = a, layer.scale * b
    return found


def _own_pairs(adapter: Adapter) -> dict[str, Pair]:
    scale = np.float32(adapter.alpha / adapter.rank)
    tensors: Mapping[str, np.ndarray] = adapter.tensors
    return {
        target: (
            tensors[f"{target}.lora_A.weight"].astype(np.float32),
            scale * tensors[f"{target}.lora_B.weight"].astype(np.float32),
        )
        for target in adapter.targets
    }


def _filled(pair: Pair | None, rank: int, num_in: int, num_out: int) -> Pair:
    """Up to ``rank`` by zeros."""
    a, b = np.zeros((rank, num_in), np.float32), np.zeros((num_out, rank), np.float32)
    if pair is not None:
        own = pair[0].shape[0]
        a[:own], b[:, :own] = pair
    return a, b
