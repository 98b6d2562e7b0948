"""Each penalty at its own best beta, which is chosen on other seeds than it is judged by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from experiment_intervals import at_once
from penalties_arms import K1, NO_KL
from penalties_data import Data, Floats, Found

from kltune.statistics.arms import at_end


def best_at_end(gold_BSC: Sequence[Floats]) -> Floats:
    """Gold at the end of each seed, at the beta that is best at the end on the *other* seeds."""
    ends_BS = np.array([at_end(gold) for gold in gold_BSC])
    seeds = range(ends_BS.shape[1])
    chosen = [int(np.argmax(np.delete(ends_BS, s, axis=1).mean(axis=1))) for s in seeds]
    return ends_BS[chosen, list(seeds)]


def best_when_stopped(gold_BSC: Sequence[Floats]) -> Floats:
    """Gold of each seed at the beta and evaluation that are best on the *other* seeds."""
    whole = np.array(gold_BSC)[:, :, 1:]
    found = []
    for s in range(whole.shape[1]):
        others_BC = np.delete(whole, s, axis=1).mean(axis=1)
        b, c = np.unravel_index(int(np.argmax(others_BC)), others_BC.shape)
        found.append(whole[b, s, c])
    return np.array(found)


def best_beta(data: Data) -> Found:
    """Each penalty at its own best beta, chosen on other seeds, and against k1-reward; all at once."""
    names = [NO_KL, *data.penalties()]
    measures = {"end": best_at_end, "stopped": best_when_stopped}
    values = {
        how: {p: best([data.gold[name] for name in data.arms_of(p)]) for p in names}
        for how, best in measures.items()
    }
    count = len(names) - 1
    return {
        p: {
            how: {"gold": at_once(own[p])}
            | ({} if p == K1 else {"to_k1_reward": at_once(own[p] - own[K1], count)})
            for how, own in values.items()
        }
        for p in names
    }
