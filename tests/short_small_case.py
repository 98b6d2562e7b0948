"""Made-up runs of the study of short and small looks, whose truth is known."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from studies_case import STUDIES, load_script

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-short-small"))

from short_small_analysis import analyse
from short_small_arms import MODELS, arm

study = load_script("2026-11-30-short-small")

STEPS = np.arange(0, 61, 5)
LATE = dict(zip(study.BETAS, (0.0, 0.4, 0.9, 0.7, 0.3), strict=True))
"""Gold over the start at the last step: the best is .15."""
EARLY = dict(zip(study.BETAS, (0.7, 0.6, 0.5, 0.4, 0.2), strict=True))
"""After a quarter of the steps: the less it costs, the faster it rises, so an early look is misled."""
SPEED = {"small": 60.0, "medium": 120.0, "full": 120.0, "large": 240.0}


def made_up(
    seed: int = 0, noise: float = 0.03, flip_small: bool = False, alike: bool = False
) -> pd.DataFrame:
    """runs.csv; the small model's order may be another, or all settings alike."""
    rng = np.random.default_rng(seed)
    rows: list[pd.DataFrame] = []
    for model in MODELS:
        for i, beta in enumerate(study.BETAS):
            late = (
                LATE[study.BETAS[(i + 1) % len(study.BETAS)]]
                if flip_small and model == "small"
                else LATE[beta]
            )
            early = EARLY[beta]
            if alike:
                late = early = 0.5
            curve = np.interp(STEPS, (0, 15, 60), (0.0, early, late))
            for s in study.SEEDS:
                gold = 0.2 + curve + rng.normal(0, noise, len(STEPS))
                kl = STEPS / 60 * 8 / (1 + 10 * beta)
                run = {
                    "step": STEPS,
                    "gold": gold,
                    "proxy": gold,
                    "kl_seq": kl,
                    "kl_token": kl / 12,
                }
                rows.append(
                    pd.DataFrame(run).assign(block=model, arm=arm(beta), seed=s, entropy_token=0.5)
                )
    return pd.concat(rows, ignore_index=True)


def machine() -> dict[str, Any]:
    """machine.json."""
    arms = {arm(beta): {} for beta in study.BETAS}
    blocks = {
        name: {"arms": arms, "seeds": list(study.SEEDS), "wall_s": wall, "ends": {"done": 40}}
        for name, wall in SPEED.items()
    }
    return {"env": {}, "blocks": blocks}


@cache
def analysed(**changes: Any) -> dict[str, Any]:
    """What is found in runs that are made up so."""
    return analyse(made_up(**changes), pd.DataFrame(), machine(), draws=40)
