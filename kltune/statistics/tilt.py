"""Rewards of n completions per prompt in, the best policy at each price of KL out: ref · exp(R / beta), by weights.

The policy that maximises E[R] − beta · KL(policy ‖ reference) is ref · exp(R / beta) / Z, prompt by
prompt (Korbak et al. 2022; Rafailov et al. 2023, eq. 4). Completions of the reference, weighted by
exp(R / beta) and normalised within their prompt, stand in for it as long as enough of them carry
the weight. Shapes: P prompts, N completions of each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

Floats = NDArray[np.float64]

MIN_EFFECTIVE = 10.0
"""Effective samples that a prompt needs: below, the plug-in KL reads far too low."""

SUPPORTED_SHARE = 0.9
"""Share of the prompts that must have them. At this cut the mean KL of normal rewards still reads 4 to 10 % low
(simulated with 16 to 256 completions x 64 prompts), against 44 % where 16 completions read 1.1 of 2.0 nats; a
heavy upper tail of the reward costs more, and no count of effective samples can show a tail that was not drawn."""


@dataclass(frozen=True, slots=True)
class Tilted:
    """The optimum at one beta, as far as the sample shows it."""

    weights_PN: Floats
    """Rows sum to 1."""
    kl_P: Floats
    """KL(optimum ‖ reference) of each prompt, nats per sequence; the plug-in estimate, biased low."""
    effective_P: Floats
    """Effective samples of each prompt: 1 / sum of squared weights (Kish 1965)."""

    @property
    def is_supported(self) -> bool:
        """Whether enough prompts have enough effective samples for the point to be shown."""
        enough = self.effective_P >= MIN_EFFECTIVE
        return bool(enough.mean() >= SUPPORTED_SHARE)

    def mean_P(self, values_PN: Floats) -> Floats:
        """Expected value of each prompt under the optimum."""
        return (self.weights_PN * values_PN).sum(axis=1)


def tilt(rewards_PN: Floats, beta: float, log_density_PN: Floats | None = None) -> Tilted:
    """The optimum at ``beta``, in reward per nat of sequence KL; ``math.inf`` is the reference itself.

    ``log_density_PN``: log of reference over proposal of each completion, up to a constant of its
    prompt, where the completions were drawn from something else (`kltune.statistics.reweight`);
    none: the reference drew them.

    Raises:
        ValueError: beta is not above 0.
    """
    if not beta > 0:
        raise ValueError(f"beta must be above 0 (got {beta})")
    num = rewards_PN.shape[1]
    base_PN = np.zeros(rewards_PN.shape) if log_density_PN is None else log_density_PN
    log_base_PN = base_PN - _log_sum(base_PN)
    log_weights_PN = log_base_PN + rewards_PN / beta
    log_weights_PN = log_weights_PN - _log_sum(log_weights_PN)
    weights_PN = np.exp(log_weights_PN)
    # At infinite beta both are the same but for rounding.
    gap_PN = np.zeros_like(log_base_PN) if math.isinf(beta) else log_weights_PN - log_base_PN
    terms_PN = weights_PN * np.where(weights_PN > 0, gap_PN, 0.0)
    effective_P = np.minimum(1 / (weights_PN**2).sum(axis=1), num)
    return Tilted(weights_PN, np.maximum(terms_PN.sum(axis=1), 0.0), effective_P)


def beta_grid(spread: float, per_octave: int = 4) -> tuple[float, ...]:
    """Betas from 32 times the reward's ``spread`` within a prompt down to 1/32 of it, high to low."""
    octaves = 10 * per_octave
    return tuple(spread * 2 ** (5 - i / per_octave) for i in range(octaves + 1))


def samples_needed(kl_seq: float, log_loss: float, kl_seen: float) -> float:
    """Completions per prompt for `MIN_EFFECTIVE` effective ones at ``kl_seq`` nats per sequence, about.

    ``log_loss``: log of (completions / effective ones) at ``kl_seen``. That loss grows in
    proportion to the KL where rewards are normal (two per nat); the proportion seen is carried on.

    Raises:
        ValueError: ``kl_seen`` is not above 0.
    """
    if not kl_seen > 0:
        raise ValueError(f"kl_seen must be above 0 (got {kl_seen})")
    return MIN_EFFECTIVE * math.exp(log_loss / kl_seen * kl_seq)


def _log_sum(terms_PN: Floats) -> Floats:
    """Log of the sum of the exponentials of each row: ``[P, 1]``."""
    return np.asarray(logsumexp(terms_PN, axis=1, keepdims=True), dtype=np.float64)
