"""Studies of a comparison in, gold against KL of their trials in one drawing out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from kltune.report.canvas import Trace, draw_traces, drawing
from kltune.report.document import Figure
from kltune.report.rows import TrialRow
from kltune.report.versus import Side
from kltune.trial.words import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Told apart by the colour-blind (Okabe & Ito 2008)."""
_MARKERS: Final = "osD^vP"
_FAINT: Final = "40"
"""Opacity of the trials that are not recommended, in hexadecimal."""


def gold_against_kl(sides: Sequence[Side]) -> Figure | None:
    """Thick with error bars the recommended trials, thin all others; None where nothing was evaluated."""
    if not any(row.checkpoints for side in sides for row in side.study.trials):
        return None
    with drawing(7.2, 4.0) as (canvas, out):
        axes = canvas.add_subplot()
        for place, side in enumerate(sides):
            colour = COLOURS[place % len(COLOURS)]
            others = [row for row in side.study.trials if row is not side.best]
            traces = [Trace(_points(row), colour + _FAINT) for row in others]
            draw_traces(axes, traces, width=0.8, dot=2.0, zorder=2)
            _draw_best(axes, side, colour, _MARKERS[place % len(_MARKERS)])
        axes.autoscale_view()
        cut = _lowest_shown(sides)
        is_cut = axes.get_ylim()[0] < cut
        if is_cut:
            axes.set_ylim(bottom=cut)
        axes.set_xlabel("√(KL in nats/sequence)")
        axes.set_ylabel("gold (select prompts of each study)")
        axes.spines["right"].set_visible(False)
        axes.grid(alpha=0.18, lw=0.6)
        if any(side.best is not None for side in sides):
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.14), ncols=min(3, len(sides)))
    caption = (
        "Gold against √(sequence KL): the recommended trial of each study thick, ± 1 s.e. over prompts; "
        "all other trials thin."
    )
    if is_cut:
        caption += f" Gold below {number(cut)} is outside the drawing."
    return Figure(out[0], caption, is_wide=True)


def _lowest_shown(sides: Sequence[Side]) -> float:
    """A run that broke down must not press all others into a line: 2 % of the points may be left out below.

    Nothing of a recommended trial is.
    """
    golds = [y for side in sides for row in side.study.trials for _, y in _points(row)] or [0.0]
    low, high = np.percentile(golds, [2, 98])
    bars = [
        c.gold - c.gold_se
        for side in sides
        if side.best is not None
        for c in side.best.checkpoints
        if _is_drawn(c.gold - c.gold_se, c.kl_seq)
    ]
    return float(min([low, *bars]) - 0.08 * (high - low))


def _draw_best(axes: Axes, side: Side, colour: str, marker: str) -> None:
    if side.best is None:
        return
    points = _points(side.best)
    errors = [c.gold_se for c in side.best.checkpoints if _is_drawn(c.gold, c.kl_seq)]
    # A label that begins with an underscore would be left out of the legend.
    label = f"{side.label.lstrip('_')}: trial {side.best.number}".replace("$", r"\$")
    axes.errorbar(
        [x for x, _ in points],
        [y for _, y in points],
        yerr=errors,
        color=colour,
        marker=marker,
        lw=2.0,
        ms=5,
        elinewidth=0.8,
        zorder=3,
        label=label,
    )


def _points(row: TrialRow) -> list[tuple[float, float]]:
    return [
        (math.sqrt(max(0.0, c.kl_seq)), c.gold)
        for c in row.checkpoints
        if _is_drawn(c.gold, c.kl_seq)
    ]


def _is_drawn(gold: float, kl_seq: float) -> bool:
    return math.isfinite(gold + kl_seq)
