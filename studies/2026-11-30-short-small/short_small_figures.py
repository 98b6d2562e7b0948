"""Figures of the study of short and small looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from experiment import curves
from experiment_figures import interval_up, save_figure
from short_small_arms import MODELS, arm
from short_small_decisions import SHARES
from short_small_measures import GOALS

from kltune.statistics.arms import mean_of

COLOURS = ("#000000", "#440154", "#31688e", "#35b779", "#c2a000", "#c2410c")
"""From no KL to the largest beta."""
SHARE_COLOURS = {"0.25": "#c2410c", "0.5": "#c2a000", "1": "#31688e"}
SIZES = {"1": 3.0, "2": 4.5, "4": 6.0, "7": 8.0}
"""Of a point, by the number of seeds of the look."""
CONSTANTS: Mapping[str, tuple[str, str]] = {
    arm(0.05): ("always beta 0.05", "-"),
    arm(0.15): ("always beta 0.15", "--"),
    "random": ("one of all five at random", ":"),
    "random_without_largest": ("at random without beta 5", "-."),
}
APART = {"0.25": 0.93, "0.5": 1.0, "1": 1.07}
"""Of places on the cost axis, so that looks of one cost can be seen beside each other."""
GOAL_TITLES = {
    "stopped": "goal: beta, peak known",
    "at_end": "goal: beta, last step",
    "look_stop": "goal: beta and stop",
}
TOP = 1.3
"""Gold lost above which bars are cut."""


def draw(runs: pd.DataFrame, _steps: pd.DataFrame, results: dict[str, Any], out: Path) -> None:
    """gold.png: gold by step for each model; regret.png: what an early or small decision loses, by its cost."""
    models = list(results["models"])
    save_figure(out / "gold.png", 9, 5.6, lambda f: _draw_gold(f, runs, models))
    save_figure(out / "regret.png", 10, 7.6, lambda f: _draw_regret(f, results))


def _draw_gold(figure: Any, runs: pd.DataFrame, models: Sequence[str]) -> None:
    panels = figure.subplots(2, -(-len(models) // 2), sharex=True, sharey=True, squeeze=False)
    steps = sorted(runs["step"].unique())
    for panel, model in zip(panels.flat, models, strict=False):
        gold = curves(runs, "gold", model)
        for colour, (name, values) in zip(COLOURS, gold.items(), strict=False):
            mean = values.mean(axis=0)
            half = np.array([mean_of(column).high for column in values.T]) - mean
            label = name.replace("k1-reward", "beta")
            panel.plot(steps, mean, color=colour, lw=1.4, marker="o", ms=2.5, label=label)
            panel.fill_between(steps, mean - half, mean + half, color=colour, alpha=0.1, lw=0)
        panel.set_title(MODELS[model], fontsize=9)
        for share in SHARES[:-1]:
            panel.axvline(share * steps[-1], color="#bbbbbb", lw=0.7, ls="--", zorder=0)
        panel.axhline(0, color="#dddddd", lw=0.6, zorder=0)
    for panel in panels[-1]:
        panel.set_xlabel("training step (dashed: 25 and 50 %)")
    for row in panels:
        row[0].set_ylabel("gold, select prompts")
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=6)


def _draw_regret(figure: Any, results: Mapping[str, Any]) -> None:
    target = results["target"]
    looks = {**results["small"], target: results["early"][target]}
    panels = figure.subplots(len(GOALS), len(looks), sharex=True, sharey=True, squeeze=False)
    for panel, model in zip(panels[0], looks, strict=True):
        panel.set_title(f"look at {MODELS[model]}", fontsize=9)
    for row, goal in zip(panels, GOALS, strict=True):
        for panel, shares in zip(row, looks.values(), strict=True):
            for name, (label, dashes) in CONSTANTS.items():
                if name in results["constants"][goal]:
                    lost = results["constants"][goal][name]["mean"]
                    panel.axhline(lost, color="#555555", lw=0.9, ls=dashes, label=label, zorder=1)
            for share, told in shares.items():
                _draw_look(panel, share, told[goal]["seeds"])
        row[0].set_ylabel(f"{GOAL_TITLES[goal]}\ngold lost on {MODELS[target]}", fontsize=8)
    first = panels[0][0]
    first.set_yscale("function", functions=(_root, _square))
    first.set_ylim(-0.003, TOP)
    first.set_yticks([0, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0], ["0", ".05", ".1", ".2", ".4", ".7", "1"])
    first.set_xscale("log", base=2)
    first.set_xticks([1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8], ["1/8", "1/4", "1/2", "1", "2", "4", "8"])
    for panel in panels[-1]:
        panel.tick_params(axis="x", labelsize=7)
    figure.supxlabel(
        f"cost of all the look's seeds, in whole runs of {MODELS[target]} (dots: 1, 2, 4, 7 seeds, the larger the more)",
        fontsize=9,
    )
    handles, labels = first.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=7.5)


def _draw_look(panel: Any, share: str, seeds: Mapping[str, Any]) -> None:
    """Looks of one share of the steps: one point for each number of seeds, connected."""
    colour = SHARE_COLOURS[share]
    places = [one["cost"] * APART[share] for one in seeds.values()]
    panel.plot(
        places, [one["lost"]["mean"] for one in seeds.values()], color=colour, lw=1.2, zorder=2
    )
    for place, (num, one) in zip(places, seeds.items(), strict=True):
        style = {"color": colour, "marker": "o", "ms": SIZES[num], "lw": 0.8, "zorder": 3}
        interval_up(panel, place, one["lost"], **style)
    panel.plot(
        [], [], color=colour, marker="o", ms=5, label=f"look at {float(share):.0%} of the steps"
    )


def _root(y: Any) -> Any:
    """A scale on which .03 and .3 can both be read."""
    return np.sign(y) * np.sqrt(np.abs(y))


def _square(y: Any) -> Any:
    return np.sign(y) * np.square(y)
