"""Per-token log-ratios and exact KLs of the same samples in; bias and spread of every estimator out.

An estimator's bias is the mean of its estimates less the mean of the exact KL of the same
positions: what the prefixes happened to be is in both and cancels. Standard deviations are of the
estimate itself, so standard deviation / sqrt(completions) is the error of a batch's mean.
On the policy's own samples the ratio to the behaviour policy is 1, so the weighted wk1 and wk3 are
k1 and k3 here. Shapes: N completions, T tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kltune.audit.statistics import Estimate
from kltune.frameworks.samples import Floats, Samples, k2, k3

NAMES: Final = ("exact", "k1", "k2", "k3", "abs")
"""exact: the whole next-token distribution at every sampled position (Rao-Blackwell)."""

WANTED: Final = 0.1
"""Relative error of a mean that ``completions_needed`` is for."""


@dataclass(frozen=True, slots=True)
class EstimatorRow:
    """How an estimator of KL(policy || reference) does on the policy's own samples."""

    name: str
    mean_token: float
    """Nats per token, mean over all tokens."""
    bias_token: Estimate
    """Nats per token."""
    sd_token: float
    """Of one token's estimate, nats."""
    mean_seq: float
    """Nats per sequence."""
    bias_seq: Estimate
    """Nats per sequence."""
    sd_seq: float
    """Of one completion's sum, nats."""
    completions_needed: float
    """For a mean within 10 % of the exact KL (one standard error), bias left aside."""


def measure(
    samples: Samples, exact_NT: NDArray[np.floating], cluster_N: NDArray[np.integer]
) -> tuple[EstimatorRow, ...]:
    """Judge every estimator in ``NAMES``.

    ``cluster_N``: which completions share a prompt; standard errors are over prompts. Enumerated
    samples (``weight_N`` given) have none.
    """
    exact = np.where(samples.mask_NT, exact_NT, 0.0).astype(np.float64)
    values = {
        "exact": exact,
        "k1": samples.log_ratio_NT,
        "k2": k2(samples.log_ratio_NT),
        "k3": k3(samples.log_ratio_NT),
        "abs": np.abs(samples.log_ratio_NT),
    }
    # An estimate that overflowed has no finite mean or spread; the others are left alone.
    with np.errstate(invalid="ignore", over="ignore"):
        return tuple(_row(name, values[name], exact, samples, cluster_N) for name in NAMES)


def mean_per_token(samples: Samples, values_NT: Floats, cluster_N: NDArray[np.integer]) -> Estimate:
    """Mean over all tokens with its standard error over clusters (a ratio of two means)."""
    mean = samples.token_mean(values_NT)
    sums_N = np.where(samples.mask_NT, values_NT, 0.0).sum(axis=1)
    rest_N = (sums_N - mean * samples.mask_NT.sum(axis=1)) / samples.mean_tokens
    return Estimate(mean, _standard_error(samples, rest_N, cluster_N))


def mean_per_sequence(
    samples: Samples, values_NT: Floats, cluster_N: NDArray[np.integer]
) -> Estimate:
    """Mean over completions of the sum with its standard error over clusters."""
    mean = samples.sequence_mean(values_NT)
    sums_N = np.where(samples.mask_NT, values_NT, 0.0).sum(axis=1)
    return Estimate(mean, _standard_error(samples, sums_N - mean, cluster_N))


def _row(
    name: str,
    values_NT: Floats,
    exact_NT: Floats,
    samples: Samples,
    cluster_N: NDArray[np.integer],
) -> EstimatorRow:
    share_N = samples.share_N
    sums_N = np.where(samples.mask_NT, values_NT, 0.0).sum(axis=1)
    mean_seq, mean_token = samples.sequence_mean(values_NT), samples.token_mean(values_NT)
    sd_seq = math.sqrt(float(share_N @ (sums_N - mean_seq) ** 2))
    squares = samples.token_mean((values_NT - mean_token) ** 2)
    exact_seq = samples.sequence_mean(exact_NT)
    difference = values_NT - exact_NT
    return EstimatorRow(
        name=name,
        mean_token=mean_token,
        bias_token=mean_per_token(samples, difference, cluster_N),
        sd_token=math.sqrt(squares),
        mean_seq=mean_seq,
        bias_seq=mean_per_sequence(samples, difference, cluster_N),
        sd_seq=sd_seq,
        completions_needed=(sd_seq / (WANTED * exact_seq)) ** 2 if exact_seq > 0 else math.inf,
    )


def _standard_error(samples: Samples, rest_N: Floats, cluster_N: NDArray[np.integer]) -> float:
    """Of the mean of ``rest_N``, whose own mean is 0, with whole clusters as the draws."""
    if samples.weight_N is not None:
        return 0.0
    _, index_N = np.unique(cluster_N, return_inverse=True)
    sums_C = np.bincount(index_N, weights=rest_N)
    clusters = len(sums_C)
    if clusters < 2:
        return math.inf
    return math.sqrt(clusters / (clusters - 1) * float(sums_C @ sums_C)) / len(rest_N)
