"""Ways to choose a setting and a stop, each judged on runs that had no part in the choice.

Gold is V x S x C: settings, seeds, evaluations of a run; the first evaluation is before training.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]

BOOT = 2000
"""Draws of settings and seeds for `best_of_n`."""


def stopped_at(gold_SC: Floats, steps_C: Floats, first: int, last: int) -> Floats:
    """Mean gold of each seed over the evaluations of a window of steps, which a sweep recommends."""
    return gold_SC[:, (steps_C >= first) & (steps_C <= last)].mean(axis=1)


def stopped_by_kl(gold_SC: Floats, kl_SC: Floats, limit: float, last_place: int) -> Floats:
    """Gold of each seed at its first evaluation with that KL or more, at ``last_place`` at the latest."""
    is_there_SC = kl_SC >= limit
    is_there_SC[:, last_place] = True
    is_there_SC[:, 0] = False
    return gold_SC[np.arange(len(gold_SC)), is_there_SC.argmax(axis=1)]


def own_stop(gold_SC: Floats) -> Floats:
    """Gold of each seed where *one other* run of the setting had its highest, meaned over those others."""
    there_SS = _at_picks(gold_SC[None])[0] * (1 - np.eye(len(gold_SC)))
    return there_SS.sum(axis=0) / (len(gold_SC) - 1)


def best_of_n(gold_VSC: Floats, num: int) -> float:
    """Gold of the run with the highest evaluation of ``num`` settings of one seed, on the other seeds; mean over seeds and subsets."""
    peaks_VS, judged_VS = _picks(gold_VSC)
    return float(np.mean(_chosen(peaks_VS, judged_VS, _subsets(len(gold_VSC), num))))


def best_of_n_between(
    gold_VSC: Floats, num: int, swept_US: Floats, seed: int = 0
) -> dict[str, dict[str, float]]:
    """`best_of_n` and what a sweep is above it, with 95 % intervals.

    Percentiles over settings, sweeps and seeds drawn anew; with eight of each such intervals
    are somewhat too narrow. A seed that chooses never judges itself, also where it is drawn twice.
    """
    rng = np.random.default_rng(seed)
    num_V, num_S = gold_VSC.shape[:2]
    peaks_VS = gold_VSC[:, :, 1:].max(axis=2)
    there_VSS = _at_picks(gold_VSC)
    best_B, ahead_B = np.empty(BOOT), np.empty(BOOT)
    for b in range(BOOT):
        settings = rng.integers(num_V, size=num_V)
        counts_S = np.bincount(rng.integers(num_S, size=num_S), minlength=num_S)
        if (counts_S > 0).sum() < 2:
            counts_S = np.ones(num_S, dtype=int)
        judged_VS = _judged(there_VSS, counts_S)[settings]
        subset = np.array([rng.permutation(num_V)[:num] for _ in range(16)])
        by_seed_S = _chosen(peaks_VS[settings], judged_VS, subset).mean(axis=0)
        best_B[b] = np.average(by_seed_S, weights=counts_S)
        swept = swept_US[rng.integers(len(swept_US), size=len(swept_US))].mean(axis=0)
        ahead_B[b] = np.average(swept, weights=counts_S) - best_B[b]
    mean = best_of_n(gold_VSC, num)
    return {
        "gold": _percentiles(mean, best_B),
        "sweep_minus": _percentiles(float(swept_US.mean()) - mean, ahead_B),
    }


def crossed(a_US: Floats, b_VS: Floats | None = None, comparisons: int = 1) -> dict[str, Any]:
    """A mean over settings and seeds, or a difference of two, with its interval; ``comparisons`` of them hold at once.

    Settings (U of one, V of the other) and seeds (S, the same of both) are both samples of what could
    have been drawn: the variances of their means are added, with Satterthwaite's degrees of freedom. What a
    setting does on a seed counts in both, so the interval is wide rather than narrow. One setting alone has no spread.
    """
    by_seed_S = a_US.mean(axis=0) - (0.0 if b_VS is None else b_VS.mean(axis=0))
    samples = [by_seed_S, a_US.mean(axis=1), *([] if b_VS is None else [b_VS.mean(axis=1)])]
    parts = [(float(x.var(ddof=1)) / len(x), len(x) - 1) for x in samples if len(x) > 1]
    variance = sum(part for part, _ in parts)
    mean = float(by_seed_S.mean())
    if variance == 0:
        return {"mean": mean, "low": mean, "high": mean}
    df = variance**2 / sum(part**2 / one for part, one in parts)
    half = float(stats.t.isf(0.025 / comparisons, df)) * math.sqrt(variance)
    return {"mean": mean, "low": mean - half, "high": mean + half}


def _at_picks(gold_VSC: Floats) -> Floats:
    """V x S x S: gold on the last axis's seed where the middle one's run had its highest."""
    places_VS = 1 + gold_VSC[:, :, 1:].argmax(axis=2)
    return np.array(
        [
            [gold_SC[:, place] for place in places_S]
            for gold_SC, places_S in zip(gold_VSC, places_VS, strict=True)
        ]
    )


def _judged(there_VSS: Floats, counts_S: NDArray[np.int64]) -> Floats:
    """V x S: the mean over the seeds that did not choose, each as often as it was drawn."""
    weights_SS = np.tile(counts_S, (len(counts_S), 1)) * (1 - np.eye(len(counts_S)))
    return (there_VSS * weights_SS).sum(axis=2) / weights_SS.sum(axis=1)


def _picks(gold_VSC: Floats) -> tuple[Floats, Floats]:
    """V x S: the highest gold of a run, and what its stop is worth on the others."""
    num_S = gold_VSC.shape[1]
    judged_VS = _judged(_at_picks(gold_VSC), np.ones(num_S, dtype=int))
    return gold_VSC[:, :, 1:].max(axis=2), judged_VS


def _subsets(total: int, num: int) -> NDArray[np.int64]:
    return np.array(list(combinations(range(total), num)))


def _chosen(peaks_VS: Floats, judged_VS: Floats, subsets_KN: NDArray[np.int64]) -> Floats:
    """K x S: of each subset the setting with the highest peak of a seed, as its other seeds judge it."""
    best_KS = peaks_VS[subsets_KN].argmax(axis=1)
    chosen_KS = np.take_along_axis(subsets_KN, best_KS, axis=1)
    return np.take_along_axis(judged_VS, chosen_KS, axis=0)


def _percentiles(mean: float, drawn_B: Floats) -> dict[str, float]:
    """The estimate is always within, also where it lies beyond nearly all draws (two seeds)."""
    low, high = np.percentile(drawn_B, (2.5, 97.5))
    return {"mean": mean, "low": min(float(low), mean), "high": max(float(high), mean)}
