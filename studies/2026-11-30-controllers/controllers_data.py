"""The runs of all settings, made of runs.csv and steps.csv."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from controllers_arms import target_at
from controllers_run import Floats, Run, measure
from experiment import curves


@dataclass(frozen=True)
class Data:
    """Runs by setting, seeds in rising order."""

    runs: dict[str, list[Run]]
    gold: dict[str, Floats]
    """S seeds x C evaluations."""
    evals: list[int]
    """Steps of the evaluations."""
    num_steps: int
    seeds: list[int]
    ended_early: list[str]

    @classmethod
    def of(cls, runs: pd.DataFrame, steps: pd.DataFrame) -> Data:
        """Of runs.csv and steps.csv."""
        last = int(steps["step"].max())
        found: dict[str, list[Run]] = {}
        early = []
        for (name, seed), rows in steps.groupby(["arm", "seed"], sort=False):
            rows = rows.sort_values("step")
            step_T = rows["step"].to_numpy(float)
            kl_T, beta_T = rows["kl_token"].to_numpy(), rows["beta"].to_numpy()
            found.setdefault(name, []).append(Run(kl_T, beta_T, target_at(name, step_T, last)))
            early += [f"{name}, seed {seed}"] if step_T[-1] < last else []
        seeds = sorted(steps["seed"].unique())
        evals = sorted(runs["step"].unique())
        return cls(found, curves(runs, "gold"), evals, last, seeds, early)

    def only(self, names: Collection[str]) -> Data:
        """The runs of some settings."""
        runs = {name: own for name, own in self.runs.items() if name in names}
        return replace(self, runs=runs, gold={name: self.gold[name] for name in runs})

    def measured(self) -> dict[str, dict[str, Floats]]:
        """Each measure of each setting, by seed."""
        whole = {name: [measure(run) for run in own] for name, own in self.runs.items()}
        return {
            name: {key: np.array([one[key] for one in own]) for key in own[0]}
            for name, own in whole.items()
        }
