"""What the betas are worth on each model, and how far an early or a small look foretells it; intervals over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from experiment import curves
from short_small_arms import MODELS
from short_small_decisions import LOOK_SEEDS, MAIN_LOOK, best_setting, constants, decisions
from short_small_looks import DRAWS
from short_small_measures import GOALS, MEASURES, Curves, Floats, judged

from kltune.statistics.arms import at_end, mean_of, stop_place, when_stopped

TARGET = "large"
"""The model that the decision is for."""


def analyse(
    runs: pd.DataFrame,
    _steps: pd.DataFrame,
    machine: Mapping[str, Any],
    step_s: Mapping[str, float] | None = None,
    draws: int = DRAWS,
) -> dict[str, Any]:
    """What the betas are worth, and how far an early or a small look foretells it; intervals over seeds.

    ``step_s``: seconds of a trial-step by model on an idle machine; None: as the runs themselves took. ``draws``: of the
    seeds, for the intervals of what a look loses.
    """
    models = [name for name in MODELS if name in set(runs["block"])]
    gold = {name: curves(runs, "gold", name) for name in models}
    kl = {name: curves(runs, "kl_seq", name) for name in models}
    steps = sorted(runs["step"].unique())
    seconds = {name: seconds_per_run(machine["blocks"][name]) for name in models}
    if step_s is not None:
        seconds = {name: step_s[name] * steps[-1] for name in models}
    target = TARGET if TARGET in models else models[-1]
    look_at = _looks(runs, steps, seconds, target, draws)
    early = {name: look_at(name, name) for name in models}
    small = {name: look_at(name, target) for name in models if name != target}
    return {
        "runs": len(runs.groupby(["block", "arm", "seed"])),
        "ends": _ends(machine, models),
        "steps": int(steps[-1]),
        "target": target,
        "seconds_per_run": seconds,
        "machine_minutes": sum(machine["blocks"][name]["wall_s"] for name in models) / 60,
        "models": {name: _model(gold[name], kl[name], steps) for name in models},
        "best": best_setting(gold[target]),
        "constants": constants(gold[target]),
        "against_constants": against_constants([*small.values(), early[target]]),
        "early": early,
        "small": small,
        "lora_for_full": look_at("medium", "full") if {"medium", "full"} <= set(models) else {},
    }


def _looks(
    runs: pd.DataFrame,
    steps: Sequence[int],
    seconds: Mapping[str, float],
    target: str,
    draws: int,
) -> Callable[[str, str], dict[str, Any]]:
    """Function of the model looked at and the one decided for: what such looks mean."""

    def look_at(one: str, other: str) -> dict[str, Any]:
        shared = with_seeds(runs, shared_seeds(runs, one, other))
        looked, final = (curves(shared, "gold", name) for name in (one, other))
        # Every number of look seeds only where the decision is for the target.
        sizes = LOOK_SEEDS if other == target else (MAIN_LOOK,)
        return decisions(looked, final, steps, seconds[one] / seconds[other], sizes, draws)

    return look_at


def against_constants(models: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """By goal: how many of the looks, of every number of seeds, are told above or below always typing a good beta.

    ``below_both``: below each of the two that whole runs find best; ``above_any``: above at least one of them.
    """
    found: dict[str, dict[str, int]] = {}
    for goal in GOALS:
        looks = [
            one["minus_always"].values()
            for shares in models
            for told in shares.values()
            for one in told[goal]["seeds"].values()
        ]
        found[goal] = {
            "looks": len(looks),
            "above_any": sum(any(off["low"] > 0 for off in one) for one in looks),
            "below_any": sum(any(off["high"] < 0 for off in one) for one in looks),
            "below_both": sum(all(off["high"] < 0 for off in one) for one in looks),
        }
    return found


def shared_seeds(runs: pd.DataFrame, one: str, other: str) -> list[int]:
    """Seeds that every setting of both models has, in rising order."""
    mine = runs[runs["block"].isin([one, other])]
    sets = [set(part["seed"]) for _, part in mine.groupby(["block", "arm"])]
    return sorted(set.intersection(*sets))


def with_seeds(runs: pd.DataFrame, seeds: Sequence[int]) -> pd.DataFrame:
    """The rows of these seeds."""
    return runs[runs["seed"].isin(list(seeds))]


def seconds_per_run(block: Mapping[str, Any]) -> float:
    """Of the machine, for one run."""
    return float(block["wall_s"]) / (len(block["arms"]) * len(block["seeds"]))


def _ends(machine: Mapping[str, Any], models: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in models:
        for reason, count in machine["blocks"][name]["ends"].items():
            found[reason] = found.get(reason, 0) + count
    return found


def _model(gold: Curves, kl: Curves, steps: Sequence[int]) -> dict[str, Any]:
    arms = {
        name: {
            "stopped": asdict(mean_of(when_stopped(values))),
            "at_end": asdict(mean_of(at_end(values))),
            "stop_step": int(steps[stop_place(values)]),
            "kl_stop": geometric_mean(kl[name][:, stop_place(values)])["mean"],
            "kl_end": geometric_mean(at_end(kl[name])),
        }
        for name, values in gold.items()
    }
    start = np.mean([values[:, 0] for values in gold.values()], axis=0)
    return {
        "start": asdict(mean_of(start)),
        "arms": arms,
        **{measure: _told(judged(gold, measure)) for measure in MEASURES},
    }


def geometric_mean(kl_S: Floats) -> dict[str, Any]:
    """Geometric mean over seeds with its interval, since a run or two may go ten times as far as the others."""
    found = asdict(mean_of(np.log(kl_S)))
    return {k: math.exp(v) if k in ("mean", "low", "high") else v for k, v in found.items()}


def _told(values: Mapping[str, Floats]) -> dict[str, Any]:
    """Which pairs of settings can be told apart, all pairs of the model at once (a little wide)."""
    pairs = list(combinations(values, 2))
    off = {(a, b): mean_of(values[b] - values[a], len(pairs)) for a, b in pairs}
    apart = [f"{a} / {b}" for (a, b), one in off.items() if one.excludes_zero]
    best = max(values, key=lambda name: float(values[name].mean()))
    equal = [
        name
        for name in values
        if name != best and not any({a, b} == {name, best} for a, b in _apart(off))
    ]
    return {
        "differences": {f"{b} - {a}": asdict(one) for (a, b), one in off.items()},
        "alone": {f"{b} - {a}": asdict(mean_of(values[b] - values[a])) for a, b in pairs},
        "pairs": len(pairs),
        "apart": apart,
        "num_apart": len(apart),
        "best": best,
        "not_told_from_best": equal,
        "half_width": float(np.median([(one.high - one.low) / 2 for one in off.values()])),
    }


def _apart(off: Mapping[tuple[str, str], Any]) -> list[tuple[str, str]]:
    return [pair for pair, one in off.items() if one.excludes_zero]
