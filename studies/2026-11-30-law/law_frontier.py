"""What beta changes: gold under a penalty at equal KL, and the speed along the curve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from law_arms import (
    NO_KL,
    PENALTY_ARMS,
    PENALTY_SETTINGS,
    PRICED,
    SHIPPED,
    Proxy,
    block_name,
    level_of,
)
from law_equal_kl import at_equal_kl, held, off_at
from law_intervals import factor_of_draws, mean_of_draws
from law_runs import Runs, runs_of

from kltune.statistics.arms import at_end, when_stopped

KLS = (0.5, 1.0, 1.5, 2.0, 3.0)
"""Nats per sequence at which curves are compared. Fixed before the runs were looked at."""
SPEED_STEPS = (15, 30, 60)
"""Steps at which KL is compared."""


def frontiers(runs: pd.DataFrame, shipped: pd.DataFrame | None, start: float) -> dict[str, Any]:
    """Of the middle level and of the shipped proxy, by arm."""
    middle = level_of(block_name(Proxy(), 0))
    found: dict[str, Any] = {}
    if PRICED in set(runs["arm"]):
        arms = {PRICED: runs_of(runs, middle, PRICED, start)}
        found["middle"] = _frontier(runs_of(runs, middle, NO_KL, start), arms, len(arms))
    if shipped is not None:
        arms = {arm: runs_of(shipped, "arms", arm, start) for arm in PENALTY_ARMS}
        found[SHIPPED] = _frontier(runs_of(shipped, "arms", NO_KL, start), arms, PENALTY_SETTINGS)
    return found


def _frontier(free: Runs, arms: Mapping[str, Runs], settings: int) -> dict[str, Any]:
    """Gold of each arm less that without a penalty at equal KL, and KL at equal step; paired.

    Hold at once: the KL of ``at_kl`` and the steps of ``speed`` over all arms, the other readings over arms, each
    reading alone; the best stop and the end over ``settings``.
    """
    cells = len(arms) * len(KLS)
    speeds = [(c, step) for c, step in enumerate(free.step_C) if step in SPEED_STEPS]
    return {
        arm: {
            "at_kl": {f"{kl:g}": at_equal_kl(free, own, kl, cells) for kl in KLS},
            # Each errs to one side, since a chord lies below a hump: see `off_at`.
            "at_free": mean_of_draws(off_at(own, free), len(arms)),
            "at_priced": mean_of_draws(-off_at(free, own), len(arms)),
            "held": held(free, own, len(arms)),
            "speed": {
                str(step): factor_of_draws(
                    own.kl_SC[:, c], free.kl_SC[:, c], len(arms) * len(speeds)
                )
                for c, step in speeds
            },
            "peak_gain": mean_of_draws(
                when_stopped(own.gain_SC) - when_stopped(free.gain_SC), settings
            ),
            "end_gain": mean_of_draws(at_end(own.gain_SC) - at_end(free.gain_SC), settings),
            "kl_end": factor_of_draws(at_end(own.kl_SC)),
        }
        for arm, own in arms.items()
    }
