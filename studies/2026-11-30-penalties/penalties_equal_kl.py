"""The sound penalties together against no KL at equal KL, and how much reading between evaluations flatters them.

A run without a penalty passes the hump of gold between two evaluations, and a straight line lies below a hump; a
penalised run has more evaluations there. So the straight line takes more from no KL than from a penalty.
"""

from __future__ import annotations

import numpy as np
from experiment_intervals import at_once
from penalties_arms import BETAS, NO_KL, SOUND, arm
from penalties_data import Data, Floats, Found
from penalties_matched import LEVELS

from kltune.statistics.arms import at_kl

POOLED = tuple(arm(penalty, beta) for penalty in SOUND for beta in BETAS[:2])
"""Settings whose runs reach 1 nat/sequence and more."""
LOWEST = 0.25
"""nats/sequence: below it no KL and a penalty have hardly parted."""


def pooled_to_none(data: Data) -> Found:
    """Gold and proxy, sound penalties at .05 and .15 less no KL; per seed the mean over settings. Thought of afterwards.

    By KL: ``between``, each read between its evaluations; ``coarse``, the penalised run read no more finely than
    no KL; ``between_there`` and ``flattery``, the first and what it exceeds ``coarse`` by, on the pairs that
    ``coarse`` has. ``at_evaluations``: read where no KL has an evaluation, which errs against the penalty. The
    intervals of one measure hold at once over the levels; ``between_alone``: not. ``kl_medians``: KL (nats/sequence)
    over the runs at each evaluation, how far apart evaluations lie.
    """
    names = [name for name in POOLED if name in data.gold]
    if not names:
        return {}
    found: Found = {"levels": {}}
    for level in LEVELS:
        cell: Found = {}
        for column, table in (("gold", data.gold), ("proxy", data.proxy)):
            none_S = at_kl(table[NO_KL], data.kl[NO_KL], level)
            own_AS = np.array([at_kl(table[name], data.kl[name], level) for name in names])
            coarse_AS = np.array(
                [
                    read_as_coarsely(table[name], data.kl[name], data.kl[NO_KL], level)
                    for name in names
                ]
            )
            there_AS = np.where(np.isfinite(coarse_AS), own_AS, np.nan)
            measures = {
                "between": own_AS - none_S,
                "coarse": coarse_AS - none_S,
                "between_there": there_AS - none_S,
                "flattery": there_AS - coarse_AS,
            }
            cell[column] = {key: _over_settings(off, len(LEVELS)) for key, off in measures.items()}
            cell[column]["between_alone"] = _over_settings(measures["between"], 1)
        found["levels"][f"{level:g}"] = cell
    found["at_evaluations"] = {
        column: _over_settings(
            np.array(
                [
                    at_evaluations(table[name], data.kl[name], table[NO_KL], data.kl[NO_KL])
                    for name in names
                ]
            ),
            1,
        )
        for column, table in (("gold", data.gold), ("proxy", data.proxy))
    }
    found["kl_medians"] = {
        "steps": data.steps,
        NO_KL: np.median(data.kl[NO_KL], axis=0).tolist(),
        "penalties": np.median([data.kl[name] for name in names], axis=(0, 1)).tolist(),
    }
    return found


def read_as_coarsely(values_SC: Floats, kl_SC: Floats, other_kl_SC: Floats, level: float) -> Floats:
    """What each run had at ``level`` by a straight line between the two KL that the other run's evaluations leave around it.

    nan where one of the two never reached its KL: a run that stays below the other's next evaluation can't be read so.
    """
    found = np.full(len(kl_SC), np.nan)
    for s, other_C in enumerate(other_kl_SC):
        reached = np.flatnonzero(other_C >= level)
        if len(reached) == 0 or reached[0] == 0:
            continue
        below, above = float(other_C[reached[0] - 1]), float(other_C[reached[0]])
        first, second = (
            at_kl(values_SC[s : s + 1], kl_SC[s : s + 1], kl)[0] for kl in (below, above)
        )
        found[s] = first + (level - below) / (above - below) * (second - first)
    return found


def at_evaluations(
    values_SC: Floats, kl_SC: Floats, other_SC: Floats, other_kl_SC: Floats
) -> Floats:
    """Mean, over the other run's evaluations from `LOWEST` on, of what a run had more when it first reached their KL."""
    found = []
    for s, other_kl_C in enumerate(other_kl_SC):
        seen = (other_kl_C >= LOWEST) & (other_kl_C <= kl_SC[s].max())
        own = np.array(
            [at_kl(values_SC[s : s + 1], kl_SC[s : s + 1], kl)[0] for kl in other_kl_C[seen]]
        )
        found.append(float(np.mean(own - other_SC[s, seen])) if seen.any() else np.nan)
    return np.array(found)


def _over_settings(off_AS: Floats, comparisons: int) -> Found:
    """Per seed the mean over the settings that have a value; seeds without one are left out."""
    has = np.isfinite(off_AS)
    count_S = has.sum(axis=0)
    mean_S = np.where(has, off_AS, 0.0).sum(axis=0) / np.where(count_S > 0, count_S, 1)
    mean_S[count_S == 0] = np.nan
    if not count_S.any():
        return {"pairs": 0, "num": 0}
    return {"pairs": int(has.sum()), **at_once(mean_S, comparisons)}
