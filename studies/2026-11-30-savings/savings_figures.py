"""The figure of what a sweep saves: gold by the way of choosing, and gold against the steps that choosing took."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from experiment_figures import interval_across, interval_up, save_figure

SWEEP, OTHER = "#1b5e8c", "#c96a1b"
STYLE: dict[str, Any] = {"fmt": "o", "markersize": 5, "capsize": 2, "elinewidth": 1}


def draw(_runs: pd.DataFrame, _steps: pd.DataFrame, results: dict[str, Any], out: Path) -> None:
    """savings.png."""
    save_figure(out / "savings.png", 10.0, 4.0, lambda figure: _draw(figure, results))


def _draw(figure: Any, results: dict[str, Any]) -> None:
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    ways = results["ways"]
    for place, (name, one) in enumerate(ways.items()):
        colour = SWEEP if name.startswith("sweep") else OTHER
        interval_across(left, place, one, color=colour, **STYLE)
    left.set_yticks(range(len(ways)), list(ways))
    left.set_ylim(len(ways) - 0.5, -0.5)
    left.axvline(results["start"], color="black", linewidth=0.6, linestyle=":")
    left.axvline(results["said"]["mean"], color=SWEEP, linewidth=0.8, linestyle="--")
    left.set_xlabel("gold on fresh seeds (dotted: untrained; dashed: what the sweeps said)")
    left.grid(axis="y", linewidth=0.3, alpha=0.5)
    _against_steps(right, results)


def _against_steps(axes: Any, results: dict[str, Any]) -> None:
    found = results["best_of_random"]
    for one in found.values():
        interval_up(axes, one["steps"], one["gold"], color=OTHER, **STYLE)
    swept, steps = results["ways"]["sweep"], results["cost"]["steps"]["mean"]
    interval_up(axes, steps, swept, color=SWEEP, **STYLE)
    axes.set_xscale("log")
    ticks = {one["steps"]: f"{num}\n{one['steps']}" for num, one in found.items()}
    ticks[steps] = f"sweep\n{steps:.0f}"
    axes.set_xticks(list(ticks), list(ticks.values()), fontsize=8)
    axes.minorticks_off()
    axes.set_xlim(60, 1.6 * steps)
    axes.set_xlabel("random settings tried (best of them);\nsteps trained to choose")
    axes.set_ylabel("gold on fresh seeds")
