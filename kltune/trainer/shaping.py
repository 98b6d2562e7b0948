"""Proxy scores of a step in, the scores that are paid out: z-score, scale, clip, in this order.

The KL is paid afterwards, so no clip ever touches it. Shapes: N completions of one slot.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kltune.spec.algorithm import RewardSpec


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean and spread of all values so far (Welford; merged after Chan et al. 1979)."""

    count: float = 0
    mean: float = 0
    m2: float = 0
    """Sum of squared deviations from the mean."""

    @property
    def std(self) -> float:
        """Sample standard deviation (n - 1); 0 for fewer than two values."""
        return math.sqrt(self.m2 / (self.count - 1)) if self.count > 1 else 0.0

    def merge(self, values: Tensor) -> Moments:
        """These moments and those of ``values`` together."""
        count = values.numel()
        if count == 0:
            return self
        wide = values.detach().to("cpu", torch.float64).flatten()
        # From the first value on: equal values then have a spread of exactly 0.
        mean = float(wide[0] + (wide - wide[0]).mean())
        m2 = float((wide - mean).square().sum())
        if self.count == 0:
            return Moments(count, mean, m2)
        total, shift = self.count + count, mean - self.mean
        return Moments(
            count=total,
            mean=self.mean + shift * count / total,
            m2=self.m2 + m2 + shift * shift * self.count * count / total,
        )


@dataclass(frozen=True, slots=True)
class Shaped:
    """What the scores became."""

    score_N: Tensor
    """0 where unscored."""
    is_scored_N: Tensor
    factor: float
    """Units of score per unit of the raw proxy, where no score is clipped."""
    clipped: int
    """Scores that met the clip."""
    running: Moments
    """Of all raw proxies of the trial so far, this step's included."""


def shape_scores(
    proxy_N: Tensor, spec: RewardSpec, initial: tuple[float, float], running: Moments
) -> Shaped:
    """Shape one step's scores; a NaN marks a completion that the scorer could not judge.

    ``initial`` is mean and standard deviation of the proxy under the reference. An unscored
    completion takes part in no mean, spread or count. A spread of 0 divides by 1.
    """
    is_scored_N = ~proxy_N.isnan()
    known = proxy_N[is_scored_N]
    running = running.merge(known)
    match spec.normalize:
        case "none":
            mean, std = 0.0, 1.0
        case "initial":
            mean, std = initial
        case "running":
            mean, std = running.mean, running.std
        case "batch":
            batch = Moments().merge(known)
            mean, std = batch.mean, batch.std
    factor = spec.scale / (std or 1.0)
    score_N = ((proxy_N - mean) * factor).where(is_scored_N, 0.0)
    clipped = 0
    if spec.clip is not None:
        clipped = int((score_N.abs() > spec.clip).sum())
        score_N = score_N.clamp(-spec.clip, spec.clip)
    return Shaped(score_N, is_scored_N, factor, clipped, running)
