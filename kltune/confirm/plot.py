"""A confirmation in, one picture out: gold of every setting seed by seed, and how far the first is ahead."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kltune.confirm.looks import times
from kltune.confirm.result import ConfirmResult
from kltune.plot_style import STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {
    "recommended": "#1b5e8c",
    "candidate": "#4f9d69",
    "baseline": "#c96a1b",
    "start": "#7a7a7a",
}
_LABELS = {
    "recommended": "recommended",
    "candidate": "next best of the study",
    "baseline": "known recipe or beta = 0",
    "start": "untrained",
}


def save_plot(result: ConfirmResult, path: Path) -> None:
    """Write the picture as PNG."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        canvas = Figure(figsize=(10.0, 1.9 + 0.4 * len(result.arms)), layout="constrained", dpi=150)
        FigureCanvasAgg(canvas)
        left, right = canvas.subplots(1, 2, sharey=True)
        _golds(left, result)
        _differences(right, result)
        canvas.suptitle(
            f"{result.study}: {len(result.seeds)} fresh seeds, {result.num_prompts} test prompts x "
            f"{result.samples} completions, looked at {times(result.looks)} so far\n"
            "bars: 95 % over seeds and prompts (right: all at once); marks: single seeds; filled: told apart",
            fontsize=10,
        )
        _legend(left, result)
        path.parent.mkdir(parents=True, exist_ok=True)
        canvas.savefig(path, format="png", facecolor="white", metadata={"Software": None})


def _golds(axes: Axes, result: ConfirmResult) -> None:
    judged = result.main
    for place in judged.places:
        colour = _COLOURS[result.arms[place.arm].role]
        axes.plot(
            place.by_seed,
            [place.arm + 0.18] * len(place.by_seed),
            linestyle="",
            marker="|",
            markersize=7,
            color=colour,
            alpha=0.6,
        )
        error = [[place.gold - place.low], [place.high - place.gold]]
        axes.errorbar(
            place.gold,
            place.arm - 0.08,
            xerr=error,
            fmt="o",
            color=colour,
            markersize=5,
            capsize=2,
            elinewidth=1,
        )
    axes.set_yticks(
        range(len(judged.names)),
        [
            f"{n}\nstop at step {a.stop}" if a.stop else n
            for n, a in zip(judged.names, result.arms, strict=True)
        ],
    )
    axes.set_ylim(len(judged.names) - 0.5, -0.5)
    axes.set_xlabel("gold on test")
    axes.grid(axis="y", linewidth=0.3, alpha=0.5)


def _differences(axes: Axes, result: ConfirmResult) -> None:
    for found in result.main.against:
        colour = _COLOURS[found.role]
        error = [[found.difference - found.low], [found.high - found.difference]]
        axes.errorbar(
            found.difference,
            found.arm,
            xerr=error,
            fmt="o",
            color=colour,
            markerfacecolor=colour if found.is_told_apart else "white",
            markersize=5,
            capsize=2,
            elinewidth=1,
        )
    axes.axvline(0.0, color="black", linewidth=0.6)
    axes.set_xlabel("gold of the recommended one minus this")
    axes.grid(axis="y", linewidth=0.3, alpha=0.5)


def _legend(axes: Axes, result: ConfirmResult) -> None:
    from matplotlib.lines import Line2D

    there = dict.fromkeys(arm.role for arm in result.arms)
    handles = [Line2D([], [], color=_COLOURS[r], marker="o", label=_LABELS[r]) for r in there]
    axes.figure.legend(handles=handles, loc="outside lower center", ncols=4)
