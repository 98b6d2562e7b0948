"""The over-optimisation study's runs, made up so that their truth is known: what its modules are tested on."""

from __future__ import annotations

import functools
import math
import sys
from typing import Any

import numpy as np
import pandas as pd
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-law"))

import law_analysis
from law_arms import DRAWS, LEVELS, NO_KL, PRICED, SHIPPED, Proxy, block_name, level_of

STEPS = np.arange(0, 61, 5)
A, START = 1.0, 0.2
HOLD = {"no KL": 9.0, "k1-reward 0.05": 4.0, "k1-reward 0.15": 3.2, "k1-reward 0.5": 1.2}
"""KL at the end, nats/sequence."""


def slope_b(proxy) -> float:
    """Better proxies have a smaller b: .08 less for four times as many comparisons."""
    place = math.log(proxy.comparisons / 100, 4)
    return 0.75 - 0.08 * place + 0.3 * (proxy.noise - 0.2) + 0.05 * (3 - proxy.layers)


def gold_at(kl, a, b) -> np.ndarray:
    d = np.sqrt(np.maximum(kl, 1e-12))
    return START + d * (a - b * np.log(d))


def one_run(rng, arm, b, noise, lift) -> pd.DataFrame:
    pace = np.exp(rng.normal(0, 0.15))
    kl = HOLD["no KL"] * pace * (STEPS / 60) ** 2
    if arm != "no KL":
        kl = HOLD[arm] * np.tanh(kl / HOLD[arm])
    gold = gold_at(kl, A + rng.normal(0, noise), b + rng.normal(0, noise))
    gold = gold + (lift if arm != "no KL" else 0.0) * (kl > 0) + rng.normal(0, noise, len(STEPS))
    rest = {"kl_token": kl / 12, "entropy_token": 0.5, "tokens": 12.0}
    return pd.DataFrame(
        {"step": STEPS, "gold": gold, "proxy": np.sqrt(kl) - 0.5, "kl_seq": kl, **rest}
    )


def made_up(seed=0, noise=0.04, lift=0.0, flat=False, bend=0.0) -> pd.DataFrame:
    """``lift``: of gold under a penalty; ``flat``: all proxies are alike; ``bend``: gold that is off the law."""
    rng = np.random.default_rng(seed)
    parts = []
    for proxy in LEVELS:
        b = 0.55 if flat else slope_b(proxy)
        for i, draw in enumerate(DRAWS):
            for arm in (NO_KL, PRICED) if proxy == Proxy() else (NO_KL,):
                run = one_run(rng, arm, b, noise, lift)
                root = np.sqrt(run["kl_seq"])
                run["gold"] += bend * root * np.log(root + 1e-12).clip(-9) ** 2
                parts.append(run.assign(block=block_name(proxy, draw), arm=arm, seed=100 + i))
    return pd.concat(parts, ignore_index=True)


def made_up_penalties(lift=0.0) -> pd.DataFrame:
    rng = np.random.default_rng(9)
    parts = [
        one_run(rng, arm, 0.55, 0.04, lift).assign(block="arms", arm=arm, seed=seed)
        for arm in HOLD
        for seed in range(100, 108)
    ]
    return pd.concat(parts, ignore_index=True)


def bon_tables(gain=0.5) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Best-of-n by Gao's form, d (gain - .2 d), and proxies that see gold the better the more they learned."""
    rng = np.random.default_rng(5)
    curves, facts = [], []
    for draw in DRAWS:
        start = START + rng.normal(0, 0.01)
        for proxy in (*LEVELS, None):
            level = SHIPPED if proxy is None else level_of(block_name(proxy, draw))
            own = gain + rng.normal(0, 0.03)
            for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128):
                kl = math.log(n) - (n - 1) / n
                gold = (
                    start
                    + math.sqrt(kl) * (own - 0.2 * math.sqrt(kl))
                    + rng.normal(0, 0.01) * (n > 1)
                )
                row = {"level": level, "draw": draw, "n": n, "kl": kl, "gold": gold, "proxy": kl}
                curves += [{"split": split, **row} for split in ("select", "train")]
            seen = 0.6 if proxy is None else 0.85 - 0.4 * slope_b(proxy)
            facts.append(
                {
                    "level": level,
                    "draw": draw,
                    "trained_on": 90,
                    "noise": 0.2,
                    "layers": 3,
                    "label_accuracy": 0.6,
                    "agreement": seen + rng.normal(0, 0.01),
                    "agreement_train": seen + 0.05 + rng.normal(0, 0.01),
                    "gold_sd": 0.95,
                }
            )
    return pd.DataFrame(curves), pd.DataFrame(facts)


def analyse(runs, gain=0.5, lift=0.0) -> dict[str, Any]:
    return law_analysis.analyse(runs, *bon_tables(gain), made_up_penalties(lift))


@functools.cache
def analysed() -> dict[str, Any]:
    """Of the runs as `made_up` has them."""
    return analyse(made_up())


def holds(interval, truth) -> bool:
    return interval["low"] <= truth <= interval["high"]


MIDDLE = level_of(block_name(Proxy(), 0))
