"""Scores of n completions per prompt in, what picking the best of n would give out: unbiased, ties averaged.

Shapes: P prompts, N completions of each.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

Floats = NDArray[np.float64]


def kl_bound(n: int) -> float:
    """Upper bound on KL(best-of-n ‖ reference): log n − (n − 1)/n, in nats per sequence.

    Exact where no two completions have the same score and each is rare; below the bound otherwise
    (Beirami et al. 2024, "Theoretical guarantees on the best-of-n alignment policy").
    """
    return math.log(n) - (n - 1) / n


def n_for_bound(kl_seq: float) -> int:
    """The smallest n whose bound is at least ``kl_seq`` nats per sequence."""
    high = max(1, math.ceil(math.exp(kl_seq + 1)))  # the bound is above log n - 1
    low = 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if kl_bound(middle) >= kl_seq else (middle + 1, high)
    return low


def subset_weights(scores_PN: Floats, n: int) -> Floats:
    """Probability ``[P, N]`` that each completion is the pick of a random n-subset; rows sum to 1.

    The mean of anything under these weights is its mean over all n-subsets, so it is unbiased for
    best-of-n (a U-statistic). Completions with the same score share their probability equally,
    as if the pick among them were by lot.

    Raises:
        ValueError: n is not from 1 to N.
    """
    if not 1 <= n <= scores_PN.shape[1]:
        raise ValueError(f"n must be from 1 to {scores_PN.shape[1]} (got {n})")
    below_PN, upto_PN = _ranks(scores_PN)
    return (_all_among(upto_PN, n) - _all_among(below_PN, n)) / (upto_PN - below_PN)


def tied_kl(scores_PN: Floats, n: int) -> Floats:
    """KL(best-of-n ‖ reference) of each prompt, ``[P]``, for the scores as they were seen, ties counted.

    The sample stands in for the reference: equal scores are one outcome, whose probability is
    its share. Never above `kl_bound`; for n near N it is too low, since what was not drawn counts
    as impossible.
    """
    num = scores_PN.shape[1]
    below_PN, upto_PN = _ranks(scores_PN)
    picked_PN = (upto_PN / num) ** n - (below_PN / num) ** n
    share_PN = (upto_PN - below_PN) / num
    with np.errstate(divide="ignore", invalid="ignore"):
        terms_PN = np.where(picked_PN > 0, picked_PN * np.log(picked_PN / share_PN), 0.0)
    return (terms_PN / (upto_PN - below_PN)).sum(axis=1)


def tied_share(scores_PN: Floats) -> float:
    """Share of the pairs of completions of one prompt that have the same score."""
    below_PN, upto_PN = _ranks(scores_PN)
    return float((upto_PN - below_PN - 1).mean() / max(1, scores_PN.shape[1] - 1))


def _ranks(scores_PN: Floats) -> tuple[Floats, Floats]:
    """How many completions of the same prompt score less, and how many at most as much."""
    rows = [np.sort(row) for row in scores_PN]
    below = [
        np.searchsorted(row, own, side="left") for row, own in zip(rows, scores_PN, strict=True)
    ]
    upto = [
        np.searchsorted(row, own, side="right") for row, own in zip(rows, scores_PN, strict=True)
    ]
    return np.array(below, dtype=np.float64), np.array(upto, dtype=np.float64)


def _all_among(count_PN: Floats, n: int) -> Floats:
    """Probability that all n drawn without replacement are among ``count`` of N: C(count, n) / C(N, n)."""
    num = count_PN.shape[1]
    enough_PN = np.maximum(count_PN, n)
    log_PN = (
        gammaln(enough_PN + 1)
        - gammaln(enough_PN - n + 1)
        - (gammaln(num + 1) - gammaln(num - n + 1))
    )
    return np.where(count_PN >= n, np.exp(log_PN), 0.0)
