"""Made-up runs of the study of recipes, whose truth is known, and a machine.json beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

Truth = Mapping[str, tuple[float, float]]
"""By arm: gold at the end, and KL."""
EVALUATED = range(0, 65, 5)


def made(
    truth: Truth, seeds: int = 8, block: str = "arms", own: Mapping[str, float] | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """runs.csv and steps.csv: gold ends as told, times KL as told; noise is small and shared by the arms of a seed.

    ``own``: standard deviation between seeds that an arm has for itself, .03 unless told.
    """
    rng = np.random.default_rng(1)
    rows: list[dict[str, Any]] = []
    steps: list[dict[str, Any]] = []
    for s in range(seeds):
        shared = rng.normal(0, 0.05)
        for arm, (gold, kl) in truth.items():
            scatter = rng.normal(0, (own or {}).get(arm, 0.03))
            for step in EVALUATED:
                share = step / 60
                row = {"block": block, "arm": arm, "seed": s, "step": step}
                peak = 1.0 * min(1.0, 3 * share)
                value = peak + (gold - peak) * share**3 + shared + scatter
                more = {"proxy": share, "kl_seq": kl * share + 1e-3, "kl_token": 0.1}
                rows.append({**row, "gold": value, **more})
            steps += [
                {"block": block, "arm": arm, "seed": s, "step": step, "kl_seq": kl, "beta": 0.1}
                for step in range(1, 61)
            ]
    return pd.DataFrame(rows), pd.DataFrame(steps)


def machine(**betas: Mapping[str, float]) -> dict[str, Any]:
    """machine.json: betas of the arms by block (``units_4`` is units-4), a spread of .8 times the block's scale."""
    blocks: dict[str, Any] = {}
    for name, arms in betas.items():
        block = name.replace("units_", "units-").replace("_", ".")
        scale = float(block.removeprefix("units-")) if block.startswith("units-") else 1.0
        blocks[block] = {
            "scale": {"sigma": 0.8 * scale},
            "arms": {arm: {"beta": beta} for arm, beta in arms.items()},
        }
    return {"blocks": blocks}
