"""A study in, one bar a trial out: how far each was trained, how it ended, and where its gold peaked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kltune.report.canvas import INK, PAPER, drawing
from kltune.report.charts.timeline import MOST_PATTERNED, timeline_chart
from kltune.report.document import Figure
from kltune.report.endings import Ending, endings
from kltune.report.rows import StudyRows, TrialRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import Patch


def timeline(study: StudyRows) -> Figure | None:
    """Trials from left to right in the order they were started, steps upwards; none before the first trial."""
    if not study.trials:
        return None
    text = (
        "Training steps of every trial, in the order of their numbers; colour and pattern: how it ended; mark: the "
        f"checkpoint it is judged by; dashed: the {study.spec.trainer.steps} steps planned. "
        "A guard that spoke at the last step counts as the trial's end."
    )
    return Figure(_drawn(study), text, is_wide=True, chart=timeline_chart(study))


def _drawn(study: StudyRows) -> str:
    with drawing(9.0, 3.0) as (canvas, out):
        axes = canvas.add_subplot()
        is_patterned = len(study.trials) <= MOST_PATTERNED
        handles: list[Any] = [
            _bars(axes, ending, rows, is_patterned=is_patterned)
            for ending, rows in endings(study.trials)
        ]
        handles += _peaks(axes, study.trials)
        planned = study.spec.trainer.steps
        axes.axhline(planned, color=INK, lw=0.9, ls="--")
        numbers = [row.number for row in study.trials]
        axes.set_xlim(min(numbers) - 0.6, max(numbers) + 0.6)
        axes.set_ylim(0, 1.04 * max(planned, *(row.steps_run for row in study.trials)))
        axes.set_xlabel("trial")
        axes.set_ylabel("steps trained")
        axes.locator_params(integer=True)
        axes.spines["right"].set_visible(False)
        canvas.legend(handles=handles, loc="outside upper left", ncols=4, fontsize=8)
    return out[0]


def _bars(axes: Axes, ending: Ending, rows: Sequence[TrialRow], *, is_patterned: bool) -> Patch:
    """Bars of one ending as one path (a thousand artists take ten times the bytes); its legend."""
    from matplotlib.collections import PathCollection
    from matplotlib.patches import Patch
    from matplotlib.path import Path

    hatch = 2 * ending.pattern if is_patterned else ""
    look: dict[str, Any] = {
        "facecolor": ending.colour,
        "edgecolor": PAPER,
        "lw": 0.3 if is_patterned else 0.0,
    }
    half = 0.4 if is_patterned else 0.5
    corners: list[tuple[float, float]] = []
    for row in rows:
        left, right, top = row.number - half, row.number + half, max(row.steps_run, 0.2)
        corners += [(left, 0), (left, top), (right, top), (right, 0), (left, 0)]
    codes = [Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY] * len(rows)
    axes.add_collection(PathCollection([Path(corners, codes)], hatch=hatch or None, **look))
    return Patch(hatch=hatch or None, label=f"{ending.words} ({len(rows)})", **look)


def _peaks(axes: Axes, rows: Sequence[TrialRow]) -> list[Any]:
    """A short line in the page's ink across each bar, all of them one path."""
    from matplotlib.collections import PathCollection
    from matplotlib.lines import Line2D
    from matplotlib.path import Path

    places = [
        (row.number + side, row.peak.step)
        for row in rows
        if row.peak is not None
        for side in (-0.4, 0.4)
    ]
    if not places:
        return []
    path = Path(places, [Path.MOVETO, Path.LINETO] * (len(places) // 2))
    look: dict[str, Any] = {"facecolors": "none", "edgecolors": INK, "lw": 1.6}
    axes.add_collection(PathCollection([path], zorder=3, **look))
    return [Line2D([], [], color=INK, lw=1.6, label="judged at")]
