"""Tables of the controllers study, made up: KL answers to beta by a known rule."""

from __future__ import annotations

import math
import sys

import numpy as np
import pandas as pd
from studies_case import STUDIES, load_script

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-controllers"))

from controllers_arms import FLOOR, FLOORED, SETTINGS, gain_of, target_at

study = load_script("2026-11-30-controllers")

STEPS = 60


def steer(name: str, rng: np.random.Generator, delay: int) -> tuple[np.ndarray, np.ndarray]:
    """KL grows by .02 a step and falls by a share of 4 beta (20 % where it is at .1), ``delay`` steps late; beta by the real rule."""
    setting, gain = SETTINGS[name], gain_of(name)
    target = target_at(name, np.arange(1.0, STEPS + 1), STEPS)
    kl, beta, value = np.zeros(STEPS), np.zeros(STEPS), float(setting["beta"])
    level = 0.0
    for t in range(STEPS):
        beta[t] = value
        kl[t] = level * math.exp(rng.normal(0, 0.05)) + 1e-4
        if not math.isnan(gain):
            value *= 1 + max(-0.2, min(0.2, kl[t] / target[t] - 1)) * gain
            value = max(value, FLOOR) if name in FLOORED else value
        level = max(level + 0.02 - min(4 * beta[max(t - delay, 0)], 0.9) * level, 0.0)
    return kl, beta


def made_up(delay: int = 0, more_gold: dict[str, float] | None = None):
    rng = np.random.default_rng(3)
    steps, runs = [], []
    for block, one in study.blocks(False, None).items():
        for name in one.arms:
            for seed in study.SEEDS:
                kl, beta = steer(name, rng, delay)
                whose = {"block": block, "arm": name, "seed": seed}
                steps += [
                    {
                        **whose,
                        "step": t + 1,
                        "kl_seq": 13 * kl[t],
                        "kl_token": kl[t],
                        "beta": beta[t],
                    }
                    for t in range(STEPS)
                ]
                gold = 0.5 + (more_gold or {}).get(name, 0.0) + rng.normal(0, 0.02, 13)
                runs += [{**whose, "step": 5 * c, "gold": gold[c]} for c in range(13)]
    return pd.DataFrame(runs), pd.DataFrame(steps)
