"""Inner products of independent blocks in, alignment and length of expected gradients with error bars out.

The cosine of two noisy mean gradients is badly biased: noise adds to their lengths, and, where both
come from the same samples, to their product as well. Products of *different* blocks have no such
term (a U-statistic), and a jackknife over folds of blocks gives standard errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kltune.audit.gram import Gram
from kltune.frameworks.samples import Floats

CLEAR = 3.0
"""A squared length is told from 0 where it is this many standard errors above it."""

WIDE = 2.0
"""Standard errors in what is called a limit."""

EXACT_ZERO = 1e-4
"""Enumerated gradients shorter than this share of the reference are rounding errors."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and its standard error (0 where nothing was sampled)."""

    value: float
    se: float

    @property
    def limit(self) -> float:
        """Upper limit: the value, or 0 where it is below, plus two standard errors."""
        return max(self.value, 0.0) + WIDE * self.se


@dataclass(frozen=True, slots=True)
class Alignment:
    """An expected gradient beside a reference gradient. None: can't be told from these samples."""

    cosine: Estimate | None
    """1: the same direction. May exceed 1 by its error, since it is not clipped."""
    ratio: Estimate | None
    """Length over the reference's length."""
    ratio_limit: float | None
    """The ratio's upper limit; none only where the reference's own length can't be told."""
    distance: Estimate | None
    """Squared length of the difference over that of the reference; may be below 0 by its error."""

    @property
    def is_known(self) -> bool:
        """Whether the reference's length could be told."""
        return self.distance is not None

    @property
    def missed(self) -> float:
        """Length of the difference over the length of the reference."""
        return math.sqrt(max(0.0, self._distance().value))

    @property
    def missed_limit(self) -> float:
        """Upper limit of ``missed``."""
        return math.sqrt(self._distance().limit)

    def _distance(self) -> Estimate:
        assert self.distance is not None
        return self.distance


def squared_length(gram: Gram, name: str) -> Estimate:
    """Squared length of an expected gradient; may be below 0 by its error."""
    product = _product(gram, name, name)
    return _estimate(product.values, product.kernel_FF)


def length(gram: Gram, name: str) -> Estimate | None:
    """Length of an expected gradient; none where it can't be told from 0."""
    squared = squared_length(gram, name)
    if not _is_clear(squared):
        return None
    product = _product(gram, name, name)
    root = _root(product.values)
    return _estimate(root, product.kernel_FF / (2 * root[0]))


def align(gram: Gram, name: str, reference: str) -> Alignment:
    """Compare two expected gradients."""
    cross = _product(gram, name, reference)
    own, theirs = _product(gram, name, name), _product(gram, reference, reference)
    if not _is_clear(_estimate(theirs.values, theirs.kernel_FF)):
        return Alignment(None, None, None, None)
    share_values = own.values / theirs.values
    share = _estimate(share_values, _slope(share_values[0], own, theirs))
    gaps = own.values - 2 * cross.values + theirs.values
    gap_kernel_FF = own.kernel_FF - 2 * cross.kernel_FF + theirs.kernel_FF
    gap = gaps / theirs.values
    distance = _estimate(gap, _slope(gap[0], _Product(gaps, gap_kernel_FF), theirs))
    limit = math.sqrt(share.limit)
    is_clear = (
        math.sqrt(max(0.0, share.value)) > EXACT_ZERO
        if gram.is_exact
        else _is_clear(_estimate(own.values, own.kernel_FF))
    )
    if not is_clear:
        return Alignment(None, None, limit, distance)
    ratio = _root(share_values)
    ratio_kernel_FF = _slope(share_values[0], own, theirs) / (2 * ratio[0])
    scale = _root(own.values * theirs.values)
    cosine = cross.values / scale
    bend_FF = own.kernel_FF / own.values[0] + theirs.kernel_FF / theirs.values[0]
    cosine_kernel_FF = cross.kernel_FF / scale[0] - cosine[0] / 2 * bend_FF
    return Alignment(
        _estimate(cosine, cosine_kernel_FF), _estimate(ratio, ratio_kernel_FF), limit, distance
    )


@dataclass(frozen=True, slots=True)
class _Product:
    """Inner product of two expected gradients."""

    values: Floats
    """From all folds, then without each: ``[1 + F]``; enumerated: the product alone."""
    kernel_FF: Floats
    """Symmetric, one estimate per pair of folds; the diagonal is never used."""


def _product(gram: Gram, first: str, second: str) -> _Product:
    products_FF, counts_F = gram.pair(first, second), gram.counts_F
    if gram.is_exact:
        return _Product(np.array([products_FF.sum()]), np.zeros((1, 1)))
    diagonal_F = np.diagonal(products_FF)
    cross_F = products_FF.sum(axis=0) + products_FF.sum(axis=1) - 2 * diagonal_F
    total = products_FF.sum() - diagonal_F.sum()
    blocks = counts_F.sum()
    pairs = blocks**2 - (counts_F**2).sum()
    without_F = (total - cross_F) / (pairs - 2 * counts_F * (blocks - counts_F))
    kernel_FF = (products_FF + products_FF.T) / (2 * np.outer(counts_F, counts_F))
    return _Product(np.concatenate([[total / pairs], without_F]), kernel_FF)


def _slope(value: float, top: _Product, bottom: _Product) -> Floats:
    """Linear part of top / bottom: what each pair of folds adds to the quotient."""
    return (top.kernel_FF - value * bottom.kernel_FF) / bottom.values[0]


def _estimate(values: Floats, kernel_FF: Floats) -> Estimate:
    """The value from all folds and its standard error by the jackknife.

    The jackknife counts the variance of a U-statistic's pair part twice (Efron & Stein 1981), and
    where noise is longer than signal that part is most of it: one count is taken off again, by the
    pairs' scatter around what their two folds explain.
    """
    if len(values) == 1:
        return Estimate(float(values[0]), 0.0)
    without_F = values[1:]
    num_folds = len(without_F)
    deviations = without_F - without_F.mean()
    variance = (num_folds - 1) / num_folds * float(deviations @ deviations)
    if not math.isfinite(variance):
        return Estimate(float(values[0]), math.inf)
    pairs = _pair_variance(kernel_FF)
    return Estimate(float(values[0]), math.sqrt(max(variance - pairs, pairs)))


def _pair_variance(kernel_FF: Floats) -> float:
    """Variance that the pair part of a U-statistic of degree 2 adds (Hoeffding 1948)."""
    num_folds = len(kernel_FF)
    off_FF = kernel_FF - np.diag(np.diagonal(kernel_FF))
    mean_F = off_FF.sum(axis=1) / (num_folds - 1)
    mean = float(mean_F.mean())
    own_F = (num_folds - 1) / (num_folds - 2) * (mean_F - mean)
    rest_FF = off_FF - mean - own_F[:, None] - own_F[None, :]
    np.fill_diagonal(rest_FF, 0.0)
    scatter = float((rest_FF**2).sum()) / (num_folds * (num_folds - 3))
    return 2 * scatter / (num_folds * (num_folds - 1))


def _is_clear(squared: Estimate) -> bool:
    return squared.value > 0 and squared.value > CLEAR * squared.se


def _root(values: Floats) -> Floats:
    # A leave-one-out value below 0 makes the standard error infinite, which is the honest answer.
    with np.errstate(invalid="ignore"):
        return np.sqrt(values)
