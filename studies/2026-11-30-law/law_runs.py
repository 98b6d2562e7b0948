"""Runs of one level or arm, and best-of-n as if it were runs: gold, proxy and KL by draw and evaluation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from experiment import curves
from law_arms import LEVELS, SMALL_LEVELS, block_name, level_of
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Runs:
    """Runs of one level without a penalty (or of one arm): S draws x C evaluations, the first the start."""

    gold_SC: Floats
    proxy_SC: Floats
    kl_SC: Floats
    step_C: tuple[int, ...]
    """Steps; of best-of-n, n."""

    @property
    def gain_SC(self) -> Floats:
        """Gold over the start."""
        return self.gold_SC - self.gold_SC[:, :1]

    def only(self, s: int) -> Runs:
        """Of one draw."""
        return self._part(slice(s, s + 1))

    def first(self, num: int) -> Runs:
        """Of the first draws."""
        return self._part(slice(num))

    def _part(self, draws: slice) -> Runs:
        return Runs(self.gold_SC[draws], self.proxy_SC[draws], self.kl_SC[draws], self.step_C)


def levels_in(runs: pd.DataFrame) -> list[str]:
    """Levels that were run, in the order of `LEVELS`."""
    there = {level_of(block) for block in runs["block"].unique()}
    names = (level_of(block_name(p, 0)) for p in dict.fromkeys((*LEVELS, *SMALL_LEVELS)))
    return [name for name in names if name in there]


def runs_of(runs: pd.DataFrame, level: str, arm: str, start: float) -> Runs:
    """Of one arm at one level; the start is ``start``, which all runs share."""
    mine = runs[(runs["block"].map(level_of) == level) & (runs["arm"] == arm)].assign(block=level)
    gold, proxy, kl = (curves(mine, c)[arm].copy() for c in ("gold", "proxy", "kl_seq"))
    gold[:, 0], proxy[:, 0] = start, proxy[:, 0].mean()
    return Runs(gold, proxy, kl, tuple(sorted(mine["step"].unique())))


def bon_runs(bon: pd.DataFrame, level: str) -> Runs:
    """Best-of-n as if it were runs: draws x n."""
    mine = bon[bon["level"] == level]
    gold, proxy, kl = (
        mine.pivot_table(index="draw", columns="n", values=c).to_numpy()
        for c in ("gold", "proxy", "kl")
    )
    return Runs(gold, proxy, kl, tuple(sorted(mine["n"].unique())))


def middle_kl(kl_SC: Floats) -> Floats:
    """Geometric mean over draws, since a run or two may go ten times as far as the others; 0 at the start."""
    return np.concatenate([[0.0], np.exp(np.log(kl_SC[:, 1:]).mean(axis=0))])
