"""The curves of all settings, made of runs.csv and steps.csv."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from experiment import curves
from numpy.typing import NDArray
from penalties_arms import BETAS, BIASED, NO_KL, SOUND, arm

Floats = NDArray[np.float64]
Found = dict[str, Any]
"""A number with its interval, as it stands in results.json."""


@dataclass(frozen=True)
class Data:
    """Curves by setting, S seeds x C evaluations."""

    gold: dict[str, Floats]
    proxy: dict[str, Floats]
    kl: dict[str, Floats]
    """nats/sequence."""
    kl_run: dict[str, Floats]
    """nats/sequence, geometric mean over the steps after the first; by seed."""
    steps: list[int]
    ended_early: list[str]
    """Runs without the last evaluation: they diverged."""
    seeds: list[int]

    @classmethod
    def of(cls, runs: pd.DataFrame, steps: pd.DataFrame) -> Data:
        """The curves in runs.csv and steps.csv."""
        last = runs.groupby(["arm", "seed"], sort=False)["step"].max()
        early = [f"{a}, seed {s}" for (a, s), step in last.items() if step < runs["step"].max()]
        parts = (curves(runs, column) for column in ("gold", "proxy", "kl_seq"))
        along = curves(steps[steps["step"] > 1], "kl_seq")
        kl_run = {name: np.exp(np.log(kl).mean(axis=1)) for name, kl in along.items()}
        return cls(
            *parts, kl_run, sorted(runs["step"].unique()), early, sorted(runs["seed"].unique())
        )

    def penalties(self) -> list[str]:
        """Those that were run."""
        return [p for p in (*SOUND, *BIASED) if self.arms_of(p)]

    def arms_of(self, penalty: str) -> list[str]:
        """The settings of a penalty, by rising beta."""
        names = [NO_KL] if penalty == NO_KL else [arm(penalty, beta) for beta in BETAS]
        return [name for name in names if name in self.gold]
