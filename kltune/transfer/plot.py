"""A comparison over sizes in, one picture out: the same settings on every size, and what moves with size."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from kltune.plot_style import STYLE
from kltune.statistics.drift import Interval
from kltune.transfer.compare import size_words
from kltune.transfer.result import Kind, Quantity, TransferResult
from kltune.transfer.verdict import MARGIN

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS: Final = {Kind.TRANSFERS: "#1f7a4d", Kind.SHIFTS: "#c96a1b", Kind.UNKNOWN: "#7a828a"}
_WIDEST: Final = 100.0
"""Factors beyond this, or 1 over it, are drawn at the edge."""


def save_plot(result: TransferResult, path: Path) -> None:
    """Write the picture as PNG."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10.0, 3.8), layout="constrained", dpi=150)
        FigureCanvasAgg(figure)
        left, right = figure.subplots(1, 2, width_ratios=(4, 5))
        _draw_ranks(left, result)
        _draw_factors(right, result)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="png", facecolor="white", metadata={"Software": None})


def _draw_ranks(axes: Axes, result: TransferResult) -> None:
    """One line per setting from the smallest size to the largest, by rank (1 is best)."""
    names = [f"{s.study}\n{size_words(s.parameters)}" for s in result.studies]
    places = list(range(len(names)))
    axes.set_title("The same settings on every size: rank by gold", fontsize=9.5, loc="left")
    axes.set_xticks(places, names, fontsize=7.5)
    if not result.matched:
        axes.text(
            0.5,
            0.5,
            "no setting was judged in every study",
            ha="center",
            va="center",
            transform=axes.transAxes,
        )
        axes.set_yticks([])
        return
    values = np.array([m.values for m in result.matched])
    ranks = (-values).argsort(axis=0, kind="stable").argsort(axis=0, kind="stable") + 1
    best = int(ranks[:, 0].argmin())
    for at, line in enumerate(ranks):
        is_best = at == best
        axes.plot(
            places,
            line,
            marker="o",
            markersize=4,
            linewidth=1.8 if is_best else 0.8,
            color="#1b5e8c" if is_best else "#9aa4ad",
            zorder=3 if is_best else 2,
        )
    label = f"blue, the best on the smallest: {result.matched[best].label}"
    axes.set_xlabel(label, fontsize=7.5, color="#1b5e8c")
    axes.set_ylim(len(values) + 0.5, 0.5)
    axes.set_ylabel("rank (1: highest gold)")


def _draw_factors(axes: Axes, result: TransferResult) -> None:
    """Factor of every quantity from the smallest size to the largest."""
    axes.axvspan(1 / MARGIN, MARGIN, color="#1f7a4d", alpha=0.09, linewidth=0)
    axes.axvline(1, color="black", linewidth=0.6)
    for height, quantity in enumerate(result.quantities):
        _draw_interval(axes, quantity, height)
    axes.set_xscale("log")
    axes.set_xlim(1 / _WIDEST, _WIDEST)
    ticks = (0.01, 0.1, 1 / MARGIN, 1, MARGIN, 10, 100)
    axes.set_xticks(ticks, ["1/100", "1/10", "1/2", "1", "2", "10", "100"])
    axes.minorticks_off()
    axes.set_ylim(len(result.quantities) - 0.5, -0.5)
    axes.set_yticks(range(len(result.quantities)), [_folded(q.name) for q in result.quantities])
    first, last = (size_words(result.studies[i].parameters) for i in (0, -1))
    axes.set_xlabel(f"factor from {first} to {last} parameters (band: 1/{MARGIN:g} to {MARGIN:g})")
    axes.set_title("What moves with size (intervals of 95 % or more)", fontsize=9.5, loc="left")


def _draw_interval(axes: Axes, quantity: Quantity, height: int) -> None:
    colour = _COLOURS[quantity.kind]
    factor: Interval = quantity.factor
    words = quantity.kind.value
    if quantity.pairs:
        ends = (
            _inside(factor.low, 1 / _WIDEST),
            _inside(factor.high, _WIDEST),
        )
        axes.plot(ends, (height, height), color=colour, linewidth=1.4, solid_capstyle="butt")
        for end, raw, mark in ((ends[0], factor.low, "<"), (ends[1], factor.high, ">")):
            is_cut = raw is None or end != raw
            axes.plot(
                end,
                height,
                marker=mark if is_cut else "|",
                color=colour,
                markersize=6,
                clip_on=False,
            )
        if factor.value is not None:
            axes.plot(_inside(factor.value, 1.0), height, marker="o", color=colour, markersize=5)
    axes.text(
        1.03,
        height,
        words,
        color=colour,
        fontsize=8,
        va="center",
        transform=axes.get_yaxis_transform(),
    )


def _inside(value: float | None, otherwise: float) -> float:
    if value is None or not math.isfinite(value):
        return otherwise
    return min(max(value, 1 / _WIDEST), _WIDEST)


def _folded(name: str) -> str:
    if len(name) <= 24:
        return name
    words = name.split()
    half = (len(words) + 1) // 2
    return f"{' '.join(words[:half])}\n{' '.join(words[half:])}"
