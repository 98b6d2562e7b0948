"""What the study found: each penalty at matched KL, at the end and over seeds, and the three published claims."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from experiment import curves
from experiment_intervals import at_once, factor_at_once
from penalties_arms import BETAS, K1, NO_KL, arm
from penalties_best_beta import best_beta
from penalties_claims import claims
from penalties_data import Data, Floats, Found
from penalties_dial import dial, leaps
from penalties_equal_kl import pooled_to_none
from penalties_matched import later, matched, reached
from penalties_spread import spread, spread_ratio

from kltune.statistics.arms import at_end, stop_place, when_stopped


def analyse(runs: pd.DataFrame, steps: pd.DataFrame) -> dict[str, Any]:
    """What each penalty did: at matched KL, at the end, over seeds; and the three published claims."""
    data = Data.of(runs, steps)
    found = {
        "runs": len(runs.groupby(["arm", "seed"])),
        "seeds": len(data.seeds),
        "ended_early": data.ended_early,
        "gold_start": at_once(data.gold[NO_KL][:, 0]),
        "settings": {name: _setting(data, name) for name in data.gold},
        "to_none": _to_none(data),
        "to_k1_reward": _to_k1_reward(data),
        "pooled_kl": _pooled(data),
        "dial": dial(data),
        "leaps": leaps(data),
        "best_beta": best_beta(data),
        "matched": {
            "to_k1_reward": matched(data, K1),
            "to_none": matched(data, NO_KL),
            "pooled_to_none": pooled_to_none(data),
        },
        "stopped_less_no_kl": _stopped_less_no_kl(data),
        "reached": reached(data),
        "later": later(data),
        "texts": _texts(runs),
    }
    return {**found, "claims": claims(found)}


def _setting(data: Data, name: str) -> Found:
    gold = data.gold[name]
    end, start, kl_end = at_end(gold), gold[:, 0], at_end(data.kl[name])
    worst = int(np.argmin(end))
    return {
        "gold_end": at_once(end),
        "gold_stopped": at_once(when_stopped(gold)),
        "stop_step": int(data.steps[stop_place(gold)]),
        "gold_change": at_once(end - start, len(data.gold)),
        "proxy_end": at_once(at_end(data.proxy[name])),
        "kl_end": factor_at_once(np.log(kl_end)),
        "kl_end_range": [float(kl_end.min()), float(kl_end.max())],
        "kl_largest": float(data.kl[name].max()),
        "sd": spread(end),
        "worst": float(end[worst]),
        "best": float(end.max()),
        "worst_seed": int(data.seeds[worst]),
        "seeds_below_start": int((end < start).sum()),
    }


def _to_none(data: Data) -> Found:
    """Every setting against no KL; the intervals of one measure hold at once."""
    count = len(data.gold) - 1
    ends, none = {k: at_end(v) for k, v in data.gold.items()}, at_end(data.gold[NO_KL])
    stopped = when_stopped(data.gold[NO_KL])
    return {
        name: {
            "gold_end": at_once(ends[name] - none, count),
            "gold_stopped": at_once(when_stopped(data.gold[name]) - stopped, count),
            "kl_end": factor_at_once(np.log(at_end(data.kl[name]) / at_end(data.kl[NO_KL])), count),
            "kl_run": factor_at_once(np.log(data.kl_run[name] / data.kl_run[NO_KL]), count),
            "sd": spread_ratio(ends[name], none, count),
        }
        for name in data.gold
        if name != NO_KL
    }


def _to_k1_reward(data: Data) -> Found:
    """Every setting against k1-reward of the same beta; the intervals of one measure hold at once."""
    pairs = [
        (arm(p, beta), arm(K1, beta))
        for p in data.penalties()
        for beta in BETAS
        if p != K1 and {arm(p, beta), arm(K1, beta)} <= set(data.gold)
    ]
    count = len(pairs)
    gold, kl = data.gold, data.kl
    return {
        name: {
            "gold_end": at_once(at_end(gold[name]) - at_end(gold[other]), count),
            "gold_stopped": at_once(when_stopped(gold[name]) - when_stopped(gold[other]), count),
            "kl_end": factor_at_once(np.log(at_end(kl[name]) / at_end(kl[other])), count),
            "kl_run": factor_at_once(np.log(data.kl_run[name] / data.kl_run[other]), count),
        }
        for name, other in pairs
    }


def _stopped_less_no_kl(data: Data) -> Found:
    """k1-reward at its lowest beta, stopped, less no KL stopped: in the family of `_to_none`, and alone.

    The same eight differences stand in four studies; their family is that of all settings against no KL here.
    """
    name, family = arm(K1, BETAS[0]), len(data.gold) - 1
    if name not in data.gold:
        return {}
    off_S = when_stopped(data.gold[name]) - when_stopped(data.gold[NO_KL])
    return {
        "setting": name,
        "family": family,
        "at_once": at_once(off_S, family),
        "alone": at_once(off_S),
    }


def _pooled(data: Data) -> Found:
    """KL by penalty over its betas of .15 and more, against no KL and against k1-reward.

    Per seed the mean of the logarithms; fewer and steadier comparisons than those of single settings.
    Twice: at the end, and along the whole run, where one late leap counts for less.
    """
    ends = {name: at_end(kl) for name, kl in data.kl.items()}
    return {"end": _pooled_ratios(data, ends), "run": _pooled_ratios(data, data.kl_run)}


def _pooled_ratios(data: Data, kl: Mapping[str, Floats]) -> Found:
    logs = {
        p: np.mean([np.log(kl[arm(p, b)]) for b in BETAS if _is_pooled(data, p, b)], axis=0)
        for p in data.penalties()
    }
    none, count = np.log(kl[NO_KL]), len(logs)
    found: Found = {}
    for p, own in logs.items():
        found[p] = {"to_none": factor_at_once(own - none, count)}
        if p != K1 and K1 in logs:
            found[p]["to_k1_reward"] = factor_at_once(own - logs[K1], count - 1)
    return found


def _is_pooled(data: Data, penalty: str, beta: float) -> bool:
    return beta in BETAS[1:] and arm(penalty, beta) in data.kl


def _texts(runs: pd.DataFrame) -> Found:
    """Length and entropy of completions at the end, by setting, beside those before training."""
    found: Found = {}
    for column in ("tokens", "entropy_token"):
        for name, table in curves(runs, column).items():
            own = found.setdefault(name, {})
            own[column] = at_once(at_end(table))
            own[f"{column}_start"] = float(table[:, 0].mean())
    return found
