"""Scored completions in, the two curves that need no training out, prompt by prompt: best-of-n and the tilt.

Shapes: G points of a curve, P prompts, N completions of each, B bootstrap draws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kltune.preview.result import Curve, Interval, Kind, Point
from kltune.statistics.best_of_n import kl_bound, subset_weights, tied_kl
from kltune.statistics.tilt import SUPPORTED_SHARE, Tilted, beta_grid, tilt

Floats = NDArray[np.float64]

NUM_BOOT = 2000
"""Bootstrap draws over prompts."""

LEAST_KL = 0.01
"""Points nearer to the reference than this many nats per sequence are left out: they all look alike."""


@dataclass(frozen=True, slots=True)
class Scored:
    """Completions with their numbers; of the reference alone, unless ``log_density_PN`` says otherwise."""

    proxy_PN: Floats
    gold_PN: Floats
    tokens_PN: Floats
    num_reference: int
    """The first so many completions of each prompt are the reference's own."""
    log_density_PN: Floats | None = None
    """Log of reference over the mixture that drew them (`kltune.statistics.reweight.balance`)."""

    def of_reference(self) -> Scored:
        """The reference's completions alone."""
        num = self.num_reference
        return Scored(self.proxy_PN[:, :num], self.gold_PN[:, :num], self.tokens_PN[:, :num], num)


@dataclass(frozen=True, slots=True)
class Traced:
    """A curve before it is averaged over prompts."""

    kind: Kind
    knob_G: tuple[float, ...]
    kl_GP: Floats
    tokens_GP: Floats
    proxy_GP: Floats
    gold_GP: Floats
    effective_G: tuple[float | None, ...]
    tied_kl_G: tuple[float | None, ...]
    cut_knob: float | None = None


def centred(values_PN: Floats) -> Floats:
    """Less the mean of each prompt; exactly 0 where a prompt's values are all the same."""
    varies_P1 = np.ptp(values_PN, axis=1, keepdims=True) > 0
    return np.where(varies_P1, values_PN - values_PN.mean(axis=1, keepdims=True), 0.0)


def spread_P(values_PN: Floats) -> Floats:
    """Standard deviation within each prompt; exactly 0 where its values are all the same."""
    return centred(values_PN).std(axis=1, ddof=1)


def resamples(num_prompts: int, seed: int) -> Floats:
    """Share of each prompt in each bootstrap draw, ``[B, P]``; the same for everything that is compared."""
    generator = np.random.default_rng(seed)
    counts_BP = generator.multinomial(num_prompts, np.full(num_prompts, 1 / num_prompts), NUM_BOOT)
    return counts_BP / num_prompts


def trace_tilt(scored: Scored) -> Traced:
    """The optimum from the reference on, for as many betas as the sample carries, high to low."""
    spread = float(spread_P(scored.of_reference().proxy_PN).mean())
    reference = tilt(scored.proxy_PN, math.inf, scored.log_density_PN)
    kept: list[tuple[float, Tilted]] = [(math.inf, reference)]
    cut: float | None = None
    for beta in beta_grid(spread) if spread > 0 else ():
        point = tilt(scored.proxy_PN, beta, scored.log_density_PN)
        if not point.is_supported:
            cut = beta
            break
        if float(point.kl_P.mean()) >= LEAST_KL:
            kept.append((beta, point))
    points = [point for _, point in kept]
    return Traced(
        kind="tilt",
        knob_G=tuple(beta for beta, _ in kept),
        kl_GP=np.stack([point.kl_P for point in points]),
        tokens_GP=np.stack([point.mean_P(scored.tokens_PN) for point in points]),
        proxy_GP=np.stack([point.mean_P(scored.proxy_PN) for point in points]),
        gold_GP=np.stack([point.mean_P(scored.gold_PN) for point in points]),
        effective_G=tuple(
            float(np.quantile(point.effective_P, 1 - SUPPORTED_SHARE)) for point in points
        ),
        tied_kl_G=(None,) * len(points),
        cut_knob=cut,
    )


def trace_best_of_n(scored: Scored) -> Traced:
    """Best-of-n for n = 1, 2, 3, 4, 6, 8, 12, ... up to all of the reference's completions of a prompt."""
    own = scored.of_reference()
    num_prompts, num = own.proxy_PN.shape
    knobs = sizes(num)
    weights_GPN = [subset_weights(own.proxy_PN, n) for n in knobs]

    def means(values_PN: Floats) -> Floats:
        return np.stack([(weights_PN * values_PN).sum(axis=1) for weights_PN in weights_GPN])

    return Traced(
        kind="best-of-n",
        knob_G=tuple(float(n) for n in knobs),
        kl_GP=np.repeat([[kl_bound(n)] for n in knobs], num_prompts, axis=1),
        tokens_GP=means(own.tokens_PN),
        proxy_GP=means(own.proxy_PN),
        gold_GP=means(own.gold_PN),
        effective_G=(None,) * len(knobs),
        tied_kl_G=tuple(_tied(own.proxy_PN, n) for n in knobs),
    )


def _tied(proxy_PN: Floats, n: int) -> float:
    kl = float(tied_kl(proxy_PN, n).mean())
    return kl if kl > 1e-12 else 0.0  # rounding leaves what is 0 a little beside it, or below


def sizes(most: int) -> tuple[int, ...]:
    """Powers of two and what lies half-way, up to ``most``, which is always the last."""
    powers = [2**i for i in range(most.bit_length() + 1)]
    halves = [3 * p // 2 for p in powers if p >= 2]
    return tuple(sorted({n for n in (*powers, *halves) if n < most} | {most}))


def average(traced: Traced, shares_BP: Floats) -> Curve:
    """Mean over the prompts, with 95 % intervals by bootstrap over prompts."""
    kl_G, tokens_G = traced.kl_GP.mean(axis=1), traced.tokens_GP.mean(axis=1)
    proxy_G, gold_G = (
        with_intervals(traced.proxy_GP, shares_BP),
        with_intervals(traced.gold_GP, shares_BP),
    )
    points = [
        Point(
            knob=knob if math.isfinite(knob) else None,
            kl_seq=float(kl_G[i]),
            kl_token=float(kl_G[i] / tokens_G[i]),
            proxy=proxy_G[i],
            gold=gold_G[i],
            effective=traced.effective_G[i],
            tied_kl_seq=traced.tied_kl_G[i],
        )
        for i, knob in enumerate(traced.knob_G)
    ]
    return Curve(traced.kind, tuple(points), traced.cut_knob)


def with_intervals(values_GP: Floats, shares_BP: Floats) -> list[Interval]:
    """Mean of each row, with the 95 % interval of its bootstrap."""
    low_G, high_G = np.quantile(shares_BP @ values_GP.T, (0.025, 0.975), axis=0)
    rows = zip(values_GP.mean(axis=1), low_G, high_G, strict=True)
    return [Interval(float(value), float(low), float(high)) for value, low, high in rows]
