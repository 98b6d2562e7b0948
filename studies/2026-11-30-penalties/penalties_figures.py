"""Figures: gold and proxy against KL along the run; what more beta does to KL; where the settings end."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from experiment_figures import interval_up, save_figure
from experiment_intervals import at_once
from penalties_arms import BETAS, BIASED, NO_KL, arm
from penalties_data import Data, Found
from penalties_hump_figure import draw_hump

from kltune.statistics.arms import at_end

COLOURS = {0.05: "#56b4e9", 0.15: "#e69f00", 0.5: "#7a3e9d"}
MARKS = {0.05: "o", 0.15: "s", 0.5: "D"}
GREY = "#606870"
STEPS_OF_BETA = (("#56b4e9", "o", -0.16), ("#7a3e9d", "D", 0.22))
"""Colour, mark and shift of .05 to .15 and of .15 to .5."""
BAR: dict[str, Any] = {"markersize": 4.5, "capsize": 2, "linewidth": 1.1}


def draw(runs: pd.DataFrame, steps: pd.DataFrame, results: dict[str, Any], out: Path) -> None:
    """frontier.png: gold and proxy against KL; dial.png: what more beta does to KL; ends.png: where settings end; hump.png: by step."""
    data = Data.of(runs, steps)
    save_figure(out / "dial.png", 10, 4.4, lambda figure: _dial(figure, data, results["dial"]))
    save_figure(out / "frontier.png", 10, 6.4, lambda figure: _frontier(figure, data))
    save_figure(out / "ends.png", 10, 4.6, lambda figure: _ends(figure, data, results))
    draw_hump(data, out)


def _frontier(figure: Any, data: Data) -> None:
    penalties = data.penalties()
    columns = min(3, len(penalties))
    axes = figure.subplots(
        math.ceil(len(penalties) / columns), columns, sharex=True, sharey=True, squeeze=False
    )
    ticks = [0.1, 0.3, 1, 3, 10, 30]
    for ax, penalty in zip(axes.flat, penalties, strict=False):
        _path(ax, data, NO_KL, GREY, None)
        for beta in BETAS:
            if arm(penalty, beta) in data.gold:
                _path(ax, data, arm(penalty, beta), COLOURS[beta], MARKS[beta])
        ax.set_title(f"{penalty}{' (biased)' if penalty in BIASED else ''}", fontsize=10)
        ax.set_xscale("log")
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.minorticks_off()
        ax.axhline(data.gold[NO_KL][:, 0].mean(), color=GREY, linewidth=0.7, linestyle=":")
        ax.set_axisbelow(True)
        ax.grid(visible=True, color="#e4e6e8", linewidth=0.5)
    figure.supxlabel("KL to the reference, nats/sequence (geometric mean over seeds)", fontsize=9)
    figure.supylabel(
        "score (gold: solid, with marks; proxy: dashed; gold before training: dotted)", fontsize=9
    )
    figure.legend(handles=_means_handles(), loc="outside upper center", ncols=6, fontsize=9)


def _path(ax: Any, data: Data, name: str, colour: str, mark: str | None) -> None:
    kl = np.exp(np.log(data.kl[name][:, 1:]).mean(axis=0))
    gold, proxy = (table[name][:, 1:].mean(axis=0) for table in (data.gold, data.proxy))
    ax.plot(kl, gold, color=colour, marker=mark, markersize=3.5, linewidth=1.4, zorder=3)
    ax.plot(kl, proxy, color=colour, linewidth=1.0, linestyle=(0, (4, 2)), zorder=2)
    last = at_once(data.gold[name][:, -1])
    interval_up(ax, kl[-1], last, color=colour, capsize=2.5, linewidth=1, zorder=1)


def _handles() -> list[Any]:
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], color=GREY, label="no KL")]
    lines += [
        Line2D(
            [], [], color=COLOURS[beta], marker=MARKS[beta], markersize=4, label=f"beta {beta:g}"
        )
        for beta in BETAS
    ]
    return lines


def _means_handles() -> list[Any]:
    from matplotlib.lines import Line2D

    proxy = Line2D([], [], color="black", linestyle=(0, (4, 2)), label="proxy")
    last = Line2D(
        [], [], color="black", marker="|", linestyle="", markersize=11, label="95 %, last gold"
    )
    return [*_handles(), proxy, last]


def _ends_handles() -> list[Any]:
    from matplotlib.lines import Line2D

    style: dict[str, Any] = {"color": "black", "marker": "o", "linestyle": "", "markersize": 4}
    end = Line2D([], [], **style, label="at the end")
    stopped = Line2D([], [], **style, markerfacecolor="white", label="when stopped")
    none = Line2D([], [], color=GREY, marker="o", markersize=4, label="no KL")
    return [none, *_handles()[1:], end, stopped]


def _dial(figure: Any, data: Data, found: Found) -> None:
    """Left along the run, right at the end, on one scale; small: the seeds."""
    panels = figure.subplots(1, 2, sharey=True)
    names = [p for p in data.penalties() if any(p in own for own in found["run"].values())]
    kl_S = {"run": data.kl_run, "end": {name: at_end(kl) for name, kl in data.kl.items()}}
    titles = {"run": "KL along the run", "end": "KL at the end"}
    for ax, (when, title) in zip(panels, titles.items(), strict=True):
        for (betas, own), (colour, mark, shift) in zip(
            found[when].items(), STEPS_OF_BETA, strict=False
        ):
            low, high = betas.split(" to ")
            for p, one in own.items():
                x = names.index(p) + shift
                seeds = kl_S[when][f"{p} {high}"] / kl_S[when][f"{p} {low}"]
                ax.plot([x - 0.1] * len(seeds), seeds, ".", color=colour, alpha=0.45, markersize=4)
                interval_up(ax, x, one["factor"], color=colour, marker=mark, linestyle="", **BAR)
        ax.axhline(1, color=GREY, linewidth=0.9, linestyle=":")
        ax.set_yscale("log")
        ticks = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20]
        ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.minorticks_off()
        shown = [f"{p} (biased)" if p in BIASED else p for p in names]
        ax.set_xticks(range(len(names)), shown, rotation=30, ha="right")
        ax.set_xlim(-0.6, len(names) - 0.4)
        ax.set_title(title, fontsize=10)
    panels[0].set_ylabel(
        "KL under the higher beta,\ntimes that under the lower\n(bars: 95 %, a colour at once)"
    )
    figure.legend(handles=_dial_handles(list(found["run"])), loc="outside upper center", ncols=4)


def _dial_handles(pairs_of_betas: list[str]) -> list[Any]:
    from matplotlib.lines import Line2D

    lines = [
        Line2D([], [], color=colour, marker=mark, linestyle="", label=f"beta {betas}")
        for betas, (colour, mark, _) in zip(pairs_of_betas, STEPS_OF_BETA, strict=False)
    ]
    one = Line2D([], [], color=GREY, marker=".", linestyle="", label="one seed")
    same = Line2D([], [], color=GREY, linestyle=":", label="beta changes nothing")
    return [*lines, one, same]


def _ends(figure: Any, data: Data, results: Found) -> None:
    left, right = figure.subplots(1, 2)
    settings, names = results["settings"], [NO_KL, *data.penalties()]
    for place, penalty in enumerate(names):
        own = data.arms_of(penalty)
        for name, shift in zip(
            own, np.linspace(-0.22, 0.22, len(own)) if own[1:] else [0], strict=True
        ):
            one, x = settings[name], place + shift
            beta = None if name == NO_KL else float(name.rsplit(" ", 1)[1])
            style = {
                "color": GREY if beta is None else COLOURS[beta],
                "marker": "o" if beta is None else MARKS[beta],
                **BAR,
            }
            interval_up(left, x, one["kl_end"], **style)
            interval_up(right, x, one["gold_end"], **style)
            interval_up(right, x + 0.09, one["gold_stopped"], **style, markerfacecolor="white")
    left.axhspan(*(settings[NO_KL]["kl_end"][key] for key in ("low", "high")), color="#eceef0")
    left.set_yscale("log")
    left.set_yticks([0.3, 1, 3, 10, 30, 100], ["0.3", "1", "3", "10", "30", "100"])
    left.minorticks_off()
    left.set_ylabel("KL at the end, nats/sequence (shaded: no KL)")
    start = results["gold_start"]["mean"]
    right.axhline(start, color=GREY, linewidth=0.8, linestyle=":")
    right.text(0.3, start, "before training", va="bottom", fontsize=8, color=GREY)
    right.set_ylabel("gold; bars: 95 %, each setting alone")
    for ax in (left, right):
        ax.set_xticks(range(len(names)), names, rotation=30, ha="right")
        ax.set_xlim(-0.6, len(names) - 0.4)
    figure.legend(handles=_ends_handles(), loc="outside upper center", ncols=6, fontsize=9)
