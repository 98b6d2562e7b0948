"""Gold of two curves at equal KL."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from law_intervals import mean_if_enough, mean_of_draws
from law_runs import Floats, Runs

from kltune.statistics.arms import at_kl

LOWEST_KL = 0.25
"""Nats per sequence below which `off_at` leaves evaluations out: near the start curves can't differ."""


def at_equal_kl(free: Runs, own: Runs, kl: float, cells: int) -> dict[str, Any]:
    """What ``own`` has more where both first reached ``kl``; ``cells`` such intervals hold at once."""
    off_S = _passing(own, kl) - _passing(free, kl)
    return mean_if_enough(off_S, cells)


def off_at(curve: Runs, points: Runs, low: float = LOWEST_KL, high: float = math.inf) -> Floats:
    """Mean, over the evaluations of ``points`` between two KL, of what ``curve`` has more at that KL; draw by draw.

    Only ``curve`` is read between its evaluations, where a straight line lies below a hump: what errs is
    told, to its disadvantage. nan where a draw has no evaluation there that ``curve`` reached too.
    """
    found: list[float] = []
    for s in range(len(points.gold_SC)):
        own = curve.only(s)
        top = min(high, float(own.kl_SC.max()))
        seen = (points.kl_SC[s] >= low) & (points.kl_SC[s] <= top)
        off = [
            _passing(own, kl)[0] - gold
            for kl, gold in zip(points.kl_SC[s][seen], points.gold_SC[s][seen], strict=True)
        ]
        found.append(float(np.mean(off)) if off else math.nan)
    return np.array(found)


def held(free: Runs, own: Runs, comparisons: int) -> dict[str, Any]:
    """A run's second half, which a penalty holds near one KL, against the other run when it passed that KL."""
    half = own.kl_SC.shape[1] // 2 + 1
    kl_S, gold_S = own.kl_SC[:, half:].mean(axis=1), own.gold_SC[:, half:].mean(axis=1)
    passed_S = np.array([_passing(free.only(s), kl)[0] for s, kl in enumerate(kl_S)])
    return {"kl": float(kl_S.mean()), **mean_of_draws(gold_S - passed_S, comparisons)}


def _passing(own: Runs, kl: float) -> Floats:
    """Gold when a run first reached ``kl``, between evaluations by the root of KL, in which gold is straighter."""
    return at_kl(own.gold_SC, np.sqrt(own.kl_SC), math.sqrt(kl))
