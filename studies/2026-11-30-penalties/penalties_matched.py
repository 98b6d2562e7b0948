"""Gold and proxy at matched KL, which settings reached it, and what time does at one KL."""

from __future__ import annotations

import numpy as np
from experiment_intervals import at_once
from penalties_arms import BETAS, NO_KL, arm
from penalties_data import Data, Floats, Found

from kltune.statistics.arms import at_end, at_kl

LEVELS = (0.5, 1.0, 2.0, 3.0)
"""nats/sequence at which settings are compared."""
ENOUGH = 4
"""Seeds that must have reached a KL before it is compared."""


def matched_difference(
    data: Data, column: str, penalty: str, reference: str, level: float
) -> tuple[Floats, int]:
    """Per seed the mean over betas of a penalty's value less the reference's, each when it first reached ``level``.

    A reference that is a penalty has the same beta. Seeds without a pair are left out. Also: the pairs.
    """
    table: dict[str, Floats] = getattr(data, column)
    rows = []
    for beta in BETAS:
        mine, other = arm(penalty, beta), NO_KL if reference == NO_KL else arm(reference, beta)
        if {mine, other} <= set(table):
            own = at_kl(table[mine], data.kl[mine], level)
            rows.append(own - at_kl(table[other], data.kl[other], level))
    whole_BS = np.array(rows)
    has = np.isfinite(whole_BS)
    seeds = has.any(axis=0)
    sums = np.where(has, whole_BS, 0.0).sum(axis=0)
    return sums[seeds] / has.sum(axis=0)[seeds], int(has.sum())


def matched(data: Data, reference: str) -> Found:
    """Gold and proxy at matched KL against ``reference``; the intervals of one measure hold at once."""
    if reference not in (NO_KL, *data.penalties()):
        return {}
    cells = {
        (level, p): {c: matched_difference(data, c, p, reference, level) for c in ("gold", "proxy")}
        for level in LEVELS
        for p in data.penalties()
        if p != reference
    }
    count = sum(len(cell["gold"][0]) >= ENOUGH for cell in cells.values())
    found: Found = {f"{level:g}": {} for level in LEVELS}
    for (level, p), cell in cells.items():
        seeds, pairs = len(cell["gold"][0]), cell["gold"][1]
        mine: Found = {"seeds": seeds, "pairs": pairs}
        if seeds >= ENOUGH:
            mine |= {column: at_once(cell[column][0], count) for column in ("gold", "proxy")}
        found[f"{level:g}"][p] = mine
    return {"comparisons": count, "levels": found}


def reached(data: Data) -> Found:
    """Seeds of each setting that reached a KL; at that KL, of those seeds: step, gold, proxy."""
    return {
        name: {f"{level:g}": _at_level(data, name, level) for level in LEVELS} for name in data.gold
    }


def _at_level(data: Data, name: str, level: float) -> Found:
    kl = data.kl[name]
    clock = np.broadcast_to(np.array(data.steps, dtype=float), kl.shape)
    step, gold, proxy = (
        at_kl(values, kl, level) for values in (clock, data.gold[name], data.proxy[name])
    )
    there = np.isfinite(step)
    found: Found = {"seeds": int(there.sum())}
    if there.any():
        parts = {"step": step, "gold": gold, "proxy": proxy}
        found |= {key: float(values[there].mean()) for key, values in parts.items()}
    return found


def later(data: Data) -> Found:
    """Gold at the end less gold when the run first had the KL that it ends with: what time does at one KL; all at once."""
    found = {}
    for name, kl_SC in data.kl.items():
        firsts = [
            at_kl(gold_C[None], kl_C[None], kl)[0]
            for gold_C, kl_C, kl in zip(data.gold[name], kl_SC, at_end(kl_SC), strict=True)
        ]
        found[name] = at_once(at_end(data.gold[name]) - np.array(firsts), len(data.kl))
    return found
