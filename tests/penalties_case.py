"""Tables of the penalties study, made up: gold depends on KL by a known frontier."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
from studies_case import STUDIES, load_script

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-penalties"))

import penalties_analysis

study = load_script("2026-11-30-penalties")

EVALS = 13
HOLD = {"no KL": 12.0, "0.05": 6.0, "0.15": 2.4, "0.5": 0.8}
"""KL at the end, nats/sequence."""


def frontier(kl: np.ndarray) -> np.ndarray:
    """Gold rises until 2.25 nats/sequence and falls after it."""
    return 0.2 + 1.5 * np.sqrt(kl) - 0.5 * kl


def made_up(
    lower: dict[str, float] | None = None,
    idle: bool = True,
    collapse: float = -1.5,
    noise: float = 0.02,
) -> pd.DataFrame:
    """Runs of every setting on one frontier; ``lower``: gold of a penalty below it at every KL above 0."""
    rng = np.random.default_rng(7)
    rows = []
    for name in study.blocks(False, None)["arms"].arms:
        penalty, _, beta = name.rpartition(" ")
        is_held = name != "no KL" and not (penalty == "k1-loss" and idle)
        final = HOLD[beta] if is_held else HOLD["no KL"]
        for seed in study.SEEDS:
            pace = np.exp(rng.normal(0, 0.1))
            kl = final * pace * np.linspace(0, 1, EVALS)
            gold = frontier(kl) - (lower or {}).get(penalty, 0.0) * (kl > 0)
            if penalty == "k3-reward":
                gold = 0.2 + collapse * np.linspace(0, 1, EVALS)
            gold = gold + rng.normal(0, noise, EVALS)
            for c in range(EVALS):
                rows.append(
                    {
                        "block": "arms",
                        "arm": name,
                        "seed": seed,
                        "step": 5 * c,
                        "gold": gold[c],
                        "proxy": kl[c] ** 0.5 - 0.5,
                        "kl_seq": kl[c],
                        "kl_token": kl[c] / 12,
                        "entropy_token": 0.5,
                        "tokens": 12.0,
                    }
                )
    return pd.DataFrame(rows)


def steps_of(runs: pd.DataFrame) -> pd.DataFrame:
    """A step for each evaluation."""
    return runs.assign(step=runs["step"] // 5 + 1)


def analyse(runs: pd.DataFrame) -> dict:
    return penalties_analysis.analyse(runs, steps_of(runs))
