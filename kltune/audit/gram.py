"""Gradients of independent blocks in, one at a time; their inner products out, with memory bounded.

Shapes: Q named gradients, P parameters, F folds (sums of neighbouring blocks).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kltune.frameworks.samples import Floats

MAX_BYTES = 2**30
"""Gradients held at once; more blocks than fit are summed into fewer folds."""

MIN_FOLDS = 4
"""Fewer would leave no standard error to speak of."""

_CHUNK = 8192
"""Parameters that are multiplied at once, in float64."""


@dataclass(frozen=True, slots=True)
class Gram:
    """Inner products of fold sums."""

    names: tuple[str, ...]
    products_FFQQ: Floats
    """``[f, h, p, q]``: sum of gradient p over fold f times sum of gradient q over fold h."""
    counts_F: NDArray[np.int64]
    """Blocks per fold."""
    is_exact: bool = False
    """The blocks are the whole distribution (enumerated), not samples of it."""

    def pair(self, first: str, second: str) -> Floats:
        """``[F, F]`` products of two gradients."""
        return self.products_FFQQ[:, :, self.names.index(first), self.names.index(second)]


class GramStream:
    """Takes block after block and keeps fold sums and their products."""

    def __init__(
        self, num_blocks: int, *, is_exact: bool = False, max_bytes: int = MAX_BYTES
    ) -> None:
        """``num_blocks``: how many will come. ``is_exact``: they add up to the whole distribution."""
        self._num_blocks, self._is_exact, self._max_bytes = num_blocks, is_exact, max_bytes
        self._names: tuple[str, ...] = ()
        self._fold_of: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._sums_FQP: NDArray[np.floating] = np.zeros((0, 0, 0))
        self._products_FFQQ: Floats = np.zeros((0, 0, 0, 0))
        self._seen = 0

    def add(self, gradients: Mapping[str, NDArray[np.floating]]) -> None:
        """Take the mean gradients of the next block; every block has the same names."""
        if not self._names:
            self._open(gradients)
        assert set(gradients) == set(self._names), f"other gradients than {self._names}"
        assert self._seen < self._num_blocks, f"more than the {self._num_blocks} blocks announced"
        fold = int(self._fold_of[self._seen])
        for row, name in enumerate(self._names):
            self._sums_FQP[fold, row] += gradients[name]
        self._seen += 1
        is_last = self._seen == self._num_blocks
        if is_last or self._fold_of[self._seen] != fold:
            self._multiply(fold)

    def finish(self) -> Gram:
        """The products of everything that came."""
        assert self._seen == self._num_blocks, f"{self._seen} of {self._num_blocks} blocks came"
        counts_F = np.bincount(self._fold_of)
        return Gram(self._names, self._products_FFQQ, counts_F, self._is_exact)

    def _open(self, gradients: Mapping[str, NDArray[np.floating]]) -> None:
        self._names = tuple(gradients)
        first = next(iter(gradients.values()))
        num_names, size = len(self._names), len(first)
        fitting = self._max_bytes // max(1, num_names * size * first.itemsize)
        folds = min(self._num_blocks, max(MIN_FOLDS, int(fitting)))
        if self._is_exact:
            folds = 1
        self._fold_of = np.arange(self._num_blocks) * folds // self._num_blocks
        self._sums_FQP = np.zeros((folds, num_names, size), dtype=first.dtype)
        self._products_FFQQ = np.zeros((folds, folds, num_names, num_names))

    def _multiply(self, fold: int) -> None:
        """Products of one finished fold with itself and all before it."""
        num_names, size = self._sums_FQP.shape[1:]
        flat = np.zeros((num_names, (fold + 1) * num_names))
        for start in range(0, size, _CHUNK):
            part = self._sums_FQP[: fold + 1, :, start : start + _CHUNK].astype(np.float64)
            flat += part[fold] @ part.reshape((fold + 1) * num_names, -1).T
        products_QFQ = flat.reshape(num_names, fold + 1, num_names)
        self._products_FFQQ[fold, : fold + 1] = products_QFQ.transpose(1, 0, 2)
        self._products_FFQQ[: fold + 1, fold] = products_QFQ.transpose(1, 2, 0)
