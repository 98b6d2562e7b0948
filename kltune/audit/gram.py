"""Gradients of independent blocks in, one at a time; their inner products out, with memory bounded.

Shapes: Q named gradients, R of them references, P parameters, F folds (sums of neighbouring blocks).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """Inner products of fold sums: of every gradient with itself and with the references."""

    names: tuple[str, ...]
    references: tuple[str, ...]
    own_FFQ: Floats
    """``[f, h, q]``: gradient q of fold f times gradient q of fold h."""
    cross_FFRQ: Floats
    """``[f, h, r, q]``: reference r of fold f times gradient q of fold h."""
    counts_F: NDArray[np.int64]
    """Blocks per fold."""
    is_exact: bool = False
    """The blocks are the whole distribution (enumerated), not samples of it."""

    def pair(self, first: str, second: str) -> Floats:
        """``[f, h]``: ``first`` of fold f times ``second`` of fold h; the same one twice, or one a reference."""
        if first == second:
            return self.own_FFQ[:, :, self.names.index(first)]
        if second not in self.references:
            return self.pair(second, first).T
        row = self.references.index(second)
        return self.cross_FFRQ[:, :, row, self.names.index(first)].T


class GramStream:
    """Takes block after block and keeps fold sums and their products."""

    def __init__(
        self,
        num_blocks: int,
        references: Sequence[str],
        *,
        is_exact: bool = False,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """``num_blocks``: how many will come. ``is_exact``: they add up to the whole distribution.

        ``references``: names that every gradient is multiplied with.
        """
        self._num_blocks, self._references = num_blocks, tuple(references)
        self._is_exact, self._max_bytes = is_exact, max_bytes
        self._names: tuple[str, ...] = ()
        self._fold_of: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._sums_FQP: NDArray[np.floating] = np.zeros((0, 0, 0))
        self._own_FFQ: Floats = np.zeros((0, 0, 0))
        self._cross_FFRQ: Floats = np.zeros((0, 0, 0, 0))
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
        return Gram(
            self._names,
            self._references,
            self._own_FFQ,
            self._cross_FFRQ,
            np.bincount(self._fold_of),
            self._is_exact,
        )

    def _open(self, gradients: Mapping[str, NDArray[np.floating]]) -> None:
        self._names = tuple(gradients)
        first = next(iter(gradients.values()))
        num_names, size = len(self._names), len(first)
        fitting = self._max_bytes // max(1, num_names * size * first.itemsize)
        folds = 1 if self._is_exact else min(self._num_blocks, max(MIN_FOLDS, int(fitting)))
        self._fold_of = np.arange(self._num_blocks) * folds // self._num_blocks
        self._sums_FQP = np.zeros((folds, num_names, size), dtype=first.dtype)
        self._own_FFQ = np.zeros((folds, folds, num_names))
        self._cross_FFRQ = np.zeros((folds, folds, len(self._references), num_names))

    def _multiply(self, fold: int) -> None:
        """Products of one finished fold with itself and all before it.

        By einsum, not by a matrix product: threads of BLAS that spin would take the cores from torch's.
        """
        rows = [self._names.index(name) for name in self._references]
        own_FQ = np.zeros_like(self._own_FFQ[fold, : fold + 1])
        ours_FRQ = np.zeros_like(self._cross_FFRQ[fold, : fold + 1])
        theirs_FRQ = np.zeros_like(ours_FRQ)
        for start in range(0, self._sums_FQP.shape[2], _CHUNK):
            part = self._sums_FQP[: fold + 1, :, start : start + _CHUNK].astype(np.float64)
            new_QP = part[fold]
            own_FQ += np.einsum("qp,fqp->fq", new_QP, part)
            ours_FRQ += np.einsum("rp,fqp->frq", new_QP[rows], part)
            theirs_FRQ += np.einsum("frp,qp->frq", part[:, rows], new_QP)
        self._own_FFQ[fold, : fold + 1] = self._own_FFQ[: fold + 1, fold] = own_FQ
        self._cross_FFRQ[fold, : fold + 1] = ours_FRQ
        self._cross_FFRQ[: fold + 1, fold] = theirs_FRQ
