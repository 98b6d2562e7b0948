"""Gold of each way to choose a setting on fresh seeds, what a sweep is ahead by, and where its time went."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from experiment import ROOT, curves, read_table
from numpy.typing import NDArray
from savings_arms import NO_KL, RECIPES
from savings_walls import paces
from savings_ways import best_of_n, best_of_n_between, crossed, own_stop, stopped_at, stopped_by_kl

from kltune.statistics.arms import mean_of

Floats = NDArray[np.float64]
Sweeps = Sequence[Mapping[str, Any]]

GRID = ROOT / "studies" / "2026-11-30-penalties" / "runs.csv"
"""Every penalty at every beta, 60 steps, without guards or pruning: what a full grid would have seen."""
GRID_PENALTIES = ("no KL", "k1-reward", "exact-full", "k2-loss", "k3-loss")

FIRST_RUNS = Path(__file__).parent / "first_runs.csv"
FIRST_SWEEPS = Path(__file__).parent / "first_sweeps.json"

SWEEP, SWEEP_BY_KL = "sweep", "sweep, stopped by KL"
SWEEP_OWN, SWEEP_END = "sweep's setting, stopped by another run", "sweep's setting, to its end"
RANDOM_STOPPED, RANDOM_END = "random, stopped by another run", "random, to its end"
RECIPE_STOPPED, RECIPE_END = "recipes, stopped by another run", "recipes, to their end"
NONE_STOPPED, NONE_END = "no KL, stopped by another run", "no KL, to its end"
AGAINST = (RANDOM_STOPPED, RANDOM_END, RECIPE_STOPPED, RECIPE_END, NONE_STOPPED, NONE_END)
"""What the sweep is held against; these hold at once."""
STOPS = (
    (SWEEP, SWEEP_END),
    (RANDOM_STOPPED, RANDOM_END),
    (RECIPE_STOPPED, RECIPE_END),
    (NONE_STOPPED, NONE_END),
)
"""What stopping is worth: the first less the second; these hold at once."""
TRIED = (1, 2, 4, 8)
"""Random settings, one run each, of which the best is taken."""


def analyse(
    runs: pd.DataFrame,
    _steps: pd.DataFrame,
    sweeps: Sweeps,
    walls: Sweeps,
) -> dict[str, Any]:
    """All that the page says, the round before and the grid of another study included."""
    gold, kl = curves(runs, "gold"), curves(runs, "kl_seq")
    steps_C = np.array(sorted(runs["step"].unique()))
    ways, swept_US = _ways(gold, kl, steps_C, sweeps)
    values_U = np.array([one["value"] for one in sweeps])
    random_VSC = _stack(gold, "random")
    return {
        "sweeps": len(sweeps),
        "trials": int(sum(one["trials"] for one in sweeps)),
        "fresh_runs": int(runs.groupby(["arm", "seed"]).ngroups),
        "fresh_seeds": int(runs["seed"].nunique()),
        "start": float(np.mean([one[:, 0].mean() for one in gold.values()])),
        "ways": {name: {**crossed(found), "settings": len(found)} for name, found in ways.items()},
        "sweep_minus": {
            name: crossed(swept_US, ways[name], len(AGAINST)) for name in AGAINST if name in ways
        },
        "stopping": {
            stopped: crossed(ways[stopped], ways[end], len(STOPS)) for stopped, end in STOPS
        },
        "setting_alone": crossed(ways[SWEEP_OWN], ways[RANDOM_STOPPED]),
        "best_of_random": {
            str(num): {
                **best_of_n_between(random_VSC, num, swept_US),
                "steps": num * int(steps_C[-1]),
            }
            for num in TRIED
            if num <= len(random_VSC)
        },
        "said": _said(values_U, swept_US, sweeps),
        "per_sweep": _per_sweep(sweeps, swept_US),
        "per_known": {
            name: {"to_its_end": _mean(gold[name][:, -1]), "stopped": _mean(own_stop(gold[name]))}
            for name in (NO_KL, *RECIPES)
            if name in gold
        },
        "cost": _cost(sweeps),
        "walls": paces(sweeps, walls),
        **_recommended(sweeps),
        "grid": grid(),
        "first_round": first_round(),
    }


def _ways(
    gold: Mapping[str, Floats], kl: Mapping[str, Floats], steps_C: Floats, sweeps: Sweeps
) -> tuple[dict[str, Floats], Floats]:
    """Settings x seeds of each way, and of the sweeps as they recommend."""
    names = [f"sweep {one['seed']}" for one in sweeps]
    swept_US = np.array(
        [
            stopped_at(gold[name], steps_C, one["stop_first_step"], one["stop_last_step"])
            for name, one in zip(names, sweeps, strict=True)
        ]
    )
    by_kl_US = np.array(
        [
            stopped_by_kl(
                gold[name],
                kl[name],
                one["stop_kl_seq"],
                int(np.flatnonzero(steps_C <= one["stop_last_step"])[-1]),
            )
            for name, one in zip(names, sweeps, strict=True)
        ]
    )
    ways = {
        SWEEP: swept_US,
        SWEEP_BY_KL: by_kl_US,
        SWEEP_OWN: np.array([own_stop(gold[name]) for name in names]),
        SWEEP_END: np.array([gold[name][:, -1] for name in names]),
    }
    groups = (
        ([arm for arm in gold if arm.startswith("random")], RANDOM_STOPPED, RANDOM_END),
        ([arm for arm in gold if arm in RECIPES], RECIPE_STOPPED, RECIPE_END),
        ([NO_KL], NONE_STOPPED, NONE_END),
    )
    for arms, stopped, end in groups:
        ways[stopped] = np.array([own_stop(gold[arm]) for arm in arms])
        ways[end] = np.array([gold[arm][:, -1] for arm in arms])
    return ways, swept_US


def _said(values_U: Floats, swept_US: Floats, sweeps: Sweeps) -> dict[str, Any]:
    """What a sweep says of its winner, and how far that is from the fresh seeds' mean."""
    fresh_U = swept_US.mean(axis=1)
    inside = [
        one["value_low"] <= fresh <= one["value_high"]
        for one, fresh in zip(sweeps, fresh_U, strict=True)
    ]
    return {
        "mean": float(values_U.mean()),
        "minus_fresh": crossed(values_U[:, None] - swept_US),
        "intervals_that_cover": int(sum(inside)),
    }


def _per_sweep(sweeps: Sweeps, swept_US: Floats) -> dict[str, Any]:
    return {
        str(one["seed"]): {
            "said": one["value"],
            "low": one["value_low"],
            "high": one["value_high"],
            "fresh": float(mine.mean()),
            "lowest": float(mine.min()),
            "origin": one["origin"],
            "penalty": one["setting"]["penalty"],
            "beta": one["setting"]["beta"],
            "first_step": one["stop_first_step"],
            "last_step": one["stop_last_step"],
        }
        for one, mine in zip(sweeps, swept_US, strict=True)
    }


def _recommended(sweeps: Sweeps) -> dict[str, Any]:
    """What the sweeps recommend, in short."""
    settings = [one["setting"] for one in sweeps]
    return {
        "penalties_recommended": _counts([str(one["penalty"]) for one in settings]),
        "controllers_recommended": _counts([str(one["controller"]) for one in settings]),
        "recipes_recommended": sum(one["origin"].startswith("baseline") for one in sweeps),
        "lowest_beta_recommended": min(one["beta"] for one in settings),
        "highest_beta_recommended": max(one["beta"] for one in settings),
    }


def _cost(sweeps: Sweeps) -> dict[str, Any]:
    """Steps and seconds of a sweep, and the share of full trials' steps that was not run, by why trials ended."""
    steps_U = np.array([one["steps"] for one in sweeps], dtype=float)
    full_U = np.array([one["trials"] * one["trial_steps"] for one in sweeps], dtype=float)
    reasons = dict.fromkeys(reason for one in sweeps for reason in one["spared"])
    spared = {
        reason: sum(one["spared"].get(reason, 0) for one in sweeps) / float(full_U.sum())
        for reason in reasons
    }
    return {
        "steps": _mean(steps_U),
        "share_run": _mean(steps_U / full_U),
        "share_spared": spared,
        "share_spared_by_guards": sum(
            share for reason, share in spared.items() if reason not in ("done", "pruned")
        ),
        "wall_s": _mean(np.array([one["wall_s"] for one in sweeps])),
    }


def grid() -> dict[str, Any]:
    """Of a full grid (study of penalties): the best run of one seed, and a setting at random, each judged on other seeds."""
    runs = read_table(GRID)
    arms = [arm for arm in runs["arm"].unique() if arm.split(" 0.")[0] in GRID_PENALTIES]
    curves_of = curves(runs, "gold")
    gold_VSC = np.array([curves_of[arm] for arm in arms])
    return {
        "settings": len(arms),
        "steps": len(arms) * int(runs["step"].max()),
        "start": float(gold_VSC[:, :, 0].mean()),
        "best": best_of_n(gold_VSC, len(arms)),
        "at_random": best_of_n(gold_VSC, 1),
    }


def first_round() -> dict[str, Any]:
    """The round before: sweeps of 16 trials, each stopped at its peak's step; three fresh seeds."""
    runs = read_table(FIRST_RUNS)
    sweeps = json.loads(FIRST_SWEEPS.read_text(encoding="utf-8"))
    gold = curves(runs, "gold")
    places = {int(step): c for c, step in enumerate(sorted(runs["step"].unique()))}
    swept_US = np.array(
        [gold[f"sweep {one['seed']}"][:, places[one["stop_step"]]] for one in sweeps]
    )
    random_VS = np.array([own_stop(gold[arm]) for arm in gold if arm.startswith("random")])
    values_U = np.array([one["value"] for one in sweeps])
    return {
        "sweeps": len(sweeps),
        "fresh_runs": int(runs.groupby(["arm", "seed"]).ngroups),
        "sweep": crossed(swept_US),
        "minus_random_stopped": crossed(swept_US, random_VS),
        "said_minus_fresh": crossed(values_U[:, None] - swept_US),
    }


def _stack(gold: Mapping[str, Floats], start: str) -> Floats:
    return np.array([one for arm, one in gold.items() if arm.startswith(start)])


def _mean(values: Floats) -> dict[str, Any]:
    return asdict(mean_of(values)) if len(values) > 1 else {"mean": float(values[0])}


def _counts(words: list[str]) -> dict[str, int]:
    return {word: words.count(word) for word in dict.fromkeys(words)}
