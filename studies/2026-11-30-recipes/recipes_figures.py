"""The figures of the study of recipes: KL and gold of every setting, and what a coefficient does in other units."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from experiment_figures import interval_across, save_figure
from recipes_arms import TUNED
from recipes_units_figure import draw_units
from recipes_verdicts import MARGIN, VERDICTS


def draw(runs: pd.DataFrame, _steps: pd.DataFrame, results: dict[str, Any], out: Path) -> None:
    """recipes.png and, where the proxy was scaled, units.png."""
    arms = list(results["arms"])
    save_figure(
        out / "recipes.png",
        10.0,
        1.8 + 0.3 * len(arms),
        lambda figure: _draw(figure, arms, results["arms"]),
    )
    if results["units"]:
        save_figure(out / "units.png", 10.0, 5.6, lambda figure: draw_units(figure, runs, results))


COLOURS = {"keeps gold": "#2166ac", "less gold": "#c96a1b", "can't be told": "#7a7a7a"}
REFERENCE = "black"
"""No KL and the setting that the others are judged against."""


def _draw(figure: Any, arms: list[str], found: dict[str, Any]) -> None:
    left, middle, right = figure.subplots(1, 3, sharey=True)
    for place, arm in enumerate(arms):
        one = found[arm]
        colour = COLOURS[one["verdict"]] if "verdict" in one else REFERENCE
        if "kl_times_none" in one:
            _bar(left, one["kl_times_none"], place, colour, "o", colour)
        if "end_minus_tuned" in one:
            _bar(middle, one["end_minus_tuned"], place, colour, "o", colour)
        _bar(right, one["gold_end"], place + 0.14, colour, "o", colour)
        _bar(right, one["gold_stopped"], place - 0.14, colour, "D", "white")
    left.axvline(1.0, color="black", linewidth=0.5, linestyle=":")
    middle.axvline(0.0, color="black", linewidth=0.5, linestyle=":")
    middle.axvline(-MARGIN, color="black", linewidth=0.5, linestyle="--")
    names = [f"{arm} (run late)" if found[arm]["run_late"] else arm for arm in arms]
    left.set_yticks(range(len(arms)), names)
    left.set_ylim(len(arms) - 0.5, -0.5)
    left.set_xscale("log")
    left.set_xticks([0.125, 0.25, 0.5, 1, 2, 4, 8], ["1/8", "1/4", "1/2", "1", "2", "4", "8"])
    left.minorticks_off()
    left.set_xlabel("KL along the run,\ntimes that of no KL")
    middle.set_xlabel(f"gold at the end, minus that of\n{TUNED} (dashed: {-MARGIN:g})")
    right.set_xlabel("gold: at the end (filled),\nwhen stopped (open)")
    for axes in (left, middle, right):
        axes.grid(axis="y", linewidth=0.3, alpha=0.5)
    _legend(figure, {one["verdict"] for one in found.values() if "verdict" in one})
    figure.suptitle(
        "Published settings in one unit, 8 seeds; 95 %, left and middle: all at once, right: each alone",
        fontsize=10,
    )


def _bar(
    axes: Any, one: dict[str, float], place: float, colour: str, marker: str, fill: str
) -> None:
    interval_across(
        axes,
        place,
        one,
        fmt=marker,
        color=colour,
        markerfacecolor=fill,
        markersize=5,
        capsize=2,
        elinewidth=1,
    )


def _legend(figure: Any, verdicts: set[str]) -> None:
    from matplotlib.lines import Line2D

    there = [name for name in VERDICTS if name in verdicts]
    handles = [
        Line2D(
            [], [], color=COLOURS[name], marker="o", linestyle="", label=f"{name}: {VERDICTS[name]}"
        )
        for name in there
    ]
    handles.append(
        Line2D(
            [],
            [],
            color=REFERENCE,
            marker="o",
            linestyle="",
            label="not judged: no KL, and the setting that the others are judged against",
        )
    )
    figure.legend(handles=handles, loc="outside lower center", ncols=1, fontsize=8)
