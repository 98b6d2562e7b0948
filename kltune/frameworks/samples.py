"""Log-probs of sampled tokens in, masked averages out; and the form in which a framework's number is given.

Shapes: N completions (sequences), T completion tokens. Log-ratios are policy minus reference, in nats.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NATS_TOKEN = "nats/token"
NATS_SEQUENCE = "nats/sequence"


@dataclass(frozen=True, slots=True)
class Samples:
    """The policy's own completions under policy and reference, at the sampling temperature.

    ``weight_N``: share of each completion, for enumerated ones their probability; none: all alike.
    """

    logprobs_NT: NDArray[np.floating]
    ref_logprobs_NT: NDArray[np.floating]
    mask_NT: NDArray[np.bool_]
    weight_N: NDArray[np.floating] | None = None

    @property
    def log_ratio_NT(self) -> Floats:
        """Policy minus reference, nats; 0 at masked positions, whatever stands there."""
        policy = np.where(self.mask_NT, self.logprobs_NT, 0.0).astype(np.float64)
        return policy - np.where(self.mask_NT, self.ref_logprobs_NT, 0.0)

    @property
    def share_N(self) -> Floats:
        """Weights that sum to 1."""
        if self.weight_N is None:
            return np.full(len(self.mask_NT), 1 / len(self.mask_NT))
        weight = self.weight_N.astype(np.float64)
        return weight / weight.sum()

    @property
    def mean_tokens(self) -> float:
        """Valid tokens per completion."""
        return float(self.share_N @ self.mask_NT.sum(axis=1))

    def token_mean(self, values_NT: NDArray[np.floating]) -> float:
        """Sum over all valid tokens / number of valid tokens."""
        return self.sequence_mean(values_NT) / self.mean_tokens

    def sequence_mean(self, values_NT: NDArray[np.floating]) -> float:
        """Mean over completions of the sum over their valid tokens."""
        return float(self.share_N @ np.where(self.mask_NT, values_NT, 0.0).sum(axis=1))

    def mean_of_token_means(self, values_NT: NDArray[np.floating]) -> float:
        """Mean over completions of the mean over their valid tokens: short ones count as much as long ones."""
        sums_N = np.where(self.mask_NT, values_NT, 0.0).sum(axis=1)
        return float(self.share_N @ (sums_N / np.maximum(self.mask_NT.sum(axis=1), 1)))


@dataclass(frozen=True, slots=True)
class Logged:
    """One number as a framework would log it, under its own metric name."""

    value: float
    unit: str
    definition: str
    """The framework's formula in one line, clamps included."""


def k2(log_ratio_NT: Floats) -> Floats:
    """u^2 / 2."""
    return log_ratio_NT**2 / 2


def k3(log_ratio_NT: Floats) -> Floats:
    """exp(-u) - 1 + u; infinite where exp overflows, as it is in a framework that does not clamp."""
    with np.errstate(over="ignore"):
        return np.exp(-log_ratio_NT) - 1 + log_ratio_NT
