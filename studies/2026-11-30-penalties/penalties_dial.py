"""Whether beta turns KL: what more of it does under each penalty, and evaluations at which KL leapt."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from experiment_intervals import factor_at_once
from penalties_arms import BETAS, K1, arm
from penalties_data import Data, Floats, Found

from kltune.statistics.arms import at_end

LEAP = 3.0
"""An evaluation leapt where KL is more than so many times that of the evaluations before and after it."""


def dial(data: Data) -> Found:
    """KL under one beta over that under the next lower, by penalty, seed by seed: along the run, and at the end."""
    ends = {name: at_end(kl) for name, kl in data.kl.items()}
    return {"run": dial_of(data.kl_run), "end": dial_of(ends)}


def dial_of(kl_S: Mapping[str, Floats]) -> Found:
    """Of any KL by setting (nats/sequence, a value a seed); the intervals of all penalties for one pair of betas hold at once.

    ``to_k1_reward``: the factor over that of k1-reward, which is the test of whether a dial turns less than its.
    """
    found: Found = {}
    for low, high in pairwise(BETAS):
        penalties = [name.rsplit(" ", 1)[0] for name in kl_S if name.endswith(f" {low:g}")]
        logs = {
            p: np.log(kl_S[arm(p, high)] / kl_S[arm(p, low)])
            for p in penalties
            if arm(p, high) in kl_S
        }
        mine: Found = {}
        for p, own in logs.items():
            mine[p] = {
                "factor": factor_at_once(own, len(logs)),
                "seeds_lower": int((own < 0).sum()),
                "seeds": len(own),
            }
            if p != K1 and K1 in logs:
                mine[p]["to_k1_reward"] = factor_at_once(own - logs[K1], len(logs) - 1)
        if mine:
            found[f"{low:g} to {high:g}"] = mine
    return found


def leaps(data: Data) -> Found:
    """Evaluations at which KL leapt and came back, by setting; the last one can't be judged."""
    found: Found = {}
    for name, kl_SC in data.kl.items():
        inner = kl_SC[:, 1:-1]
        leapt = (inner > LEAP * kl_SC[:, :-2]) & (inner > LEAP * kl_SC[:, 2:])
        # The first step away from the reference is no leap: KL was 0 before it.
        leapt &= kl_SC[:, :-2] > 0
        found[name] = [
            {
                "seed": int(data.seeds[s]),
                "step": int(data.steps[c + 1]),
                "kl": float(inner[s, c]),
                "gold": float(data.gold[name][s, c + 1]),
            }
            for s, c in zip(*np.nonzero(leapt), strict=True)
        ]
    return found
