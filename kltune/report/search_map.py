"""A study in, the map of its search out: which beta and target were tried, and what each was worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kltune.report.canvas import INK, drawing
from kltune.report.charts.search_map import MANY, map_chart
from kltune.report.colours import BEST, GREY, LOW
from kltune.report.document import Figure
from kltune.report.figures import colour_map
from kltune.report.rows import StudyRows, TrialRow
from kltune.report.search_places import Place, Places, kind_of, kinds, search_places
from kltune.trial.words import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHAPES = ("o", "s", "D", "^", "P", "*", "h", "v", "p", ">", "<", "d", "H", "8", "X", "o", "s")
"""matplotlib's names, in the order of `kltune.report.search_places.SHAPES`."""


@dataclass(frozen=True, slots=True)
class _Look:
    """How the values become colours."""

    low: float
    high: float


def search_map(study: StudyRows, best: TrialRow | None) -> Figure | None:
    """Beta against the target of KL with the value as colour; without a target, beta against the value.

    None where fewer than two trials can be placed.
    """
    places = search_places(study)
    if len(places.of_trials) < 2:
        return None
    return Figure(_drawn(places, best), _caption(places, best), chart=map_chart(places, best))


def _drawn(places: Places, best: TrialRow | None) -> str:
    values = [p.value for p in places.of_trials if p.value is not None]
    look = _Look(min(values, default=0.0), max(values, default=1.0))
    with drawing(5.6, 4.0) as (canvas, out):
        axes = canvas.add_subplot()
        mappable: Any = None
        for kind in kinds(places):
            found = [p for p in places.of_trials if kind_of(p) == kind]
            mappable = _marks(axes, found, look, is_map=places.is_map) or mappable
        _ring(axes, places, best)
        _ruled(axes, places)
        axes.grid(alpha=0.18, lw=0.6)
        axes.spines["right"].set_visible(False)
        canvas.legend(loc="outside upper left", ncols=3, fontsize=8)
        if mappable is not None:
            canvas.colorbar(mappable, ax=axes, label="value (gold)", pad=0.02, aspect=30)
    return out[0]


def _marks(axes: Axes, found: Sequence[Place], look: _Look, *, is_map: bool) -> Any:
    """Points of one shape; what was coloured by the value, if any was."""
    xs, ys = [p.x for p in found], [p.y for p in found]
    first = found[0]
    style: dict[str, Any] = {"label": first.words, "lw": 1.2}
    if first.value is None:
        axes.scatter(xs, ys, marker="x", s=18, color=INK, alpha=0.5, **style)
        return None
    style |= {"marker": _SHAPES[first.shape], "s": 34 if len(found) < MANY else 14}
    if not is_map:
        face = LOW if first.is_feasible else "none"
        axes.scatter(xs, ys, facecolors=face, edgecolors=LOW, **style)
        return None
    scale: dict[str, Any] = {"cmap": colour_map(), "vmin": look.low, "vmax": look.high}
    values = np.array([p.value for p in found], dtype=float)
    # In the legend a colour would read as a value: its entry is grey.
    grey = {"edgecolors": GREY, "facecolors": GREY if first.is_feasible else "none"}
    axes.scatter([], [], **grey, **style)
    del style["label"]
    drawn = axes.scatter(xs, ys, c=values, **scale, **style)
    if not first.is_feasible:
        edges: Any = drawn.to_rgba(values)
        drawn.set_edgecolor(edges)
        drawn.set_facecolor("none")
    return drawn


def _ring(axes: Axes, places: Places, best: TrialRow | None) -> None:
    """A ring about the recommended trial."""
    for place in places.of_trials:
        if best is not None and place.row.number == best.number:
            words = f"recommended: trial {best.number}"
            look: dict[str, Any] = {"facecolors": "none", "edgecolors": BEST, "lw": 2.2}
            axes.scatter([place.x], [place.y], s=150, label=words, zorder=5, **look)


def _ruled(axes: Axes, places: Places) -> None:
    """Logarithmic axes with strips for what has no place on them."""
    pairs = ((axes.xaxis, places.x), (axes.yaxis, places.y))
    for axis, scale in pairs:
        axis.set_label_text(scale.title)
        if not scale.is_log:
            continue
        axis.axes.set_xscale("log") if axis is axes.xaxis else axes.set_yscale("log")
        axis.set_ticks([at for at, _ in scale.ticks], [label for _, label in scale.ticks])
        axis.set_minor_formatter(lambda _value, _place: "")
        axis.set_tick_params(which="minor", length=0)
    for at in places.x.walls:
        axes.axvline(at, color=INK, lw=0.6, alpha=0.5)
    for at in places.y.walls:
        axes.axhline(at, color=INK, lw=0.6, alpha=0.5)


def _caption(places: Places, best: TrialRow | None) -> str:
    shape = "Shape: the penalty; hollow: outside the limits"
    if places.is_map:
        text = f"Every setting tried: beta at the start against the target of KL; colour: its value. {shape}."
        if any(p.value is None for p in places.of_trials):
            text += " Crosses: no value (pruned, failed or unfinished)."
    else:
        text = f"The value of every setting tried against beta at the start. {shape}."
    if places.num_left_out:
        count = number(places.num_left_out)
        text += f" {count} trial{'s' * (places.num_left_out != 1)} without a value left out."
    ring = best is not None and any(p.row.number == best.number for p in places.of_trials)
    return f"{text} Ring: the recommended one." if ring else text
