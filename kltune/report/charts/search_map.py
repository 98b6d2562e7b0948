"""The places of a study's trials in, the chart of its search out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kltune.report.charts.axes import (
    FEW_POINTS,
    Layout,
    Trace,
    axis,
    colour_bar,
    layout,
    markup,
    setting_words,
)
from kltune.report.charts.numbers import lean, short
from kltune.report.colours import BEST, GREY, LOW
from kltune.report.document import Chart
from kltune.report.rows import TrialRow
from kltune.report.search_places import SHAPES, Place, Places, Scale, kind_of, kinds
from kltune.trial.words import score

MANY = 150
"""Trials from which marks are small."""


def map_chart(places: Places, best: TrialRow | None) -> Chart:
    """One trace a penalty and filling, so that the legend switches each."""
    traces: list[Trace] = []
    if places.is_map:
        values = [p.value for p in places.of_trials if p.value is not None]
        bar = colour_bar("value (gold)", min(values, default=0.0), max(values, default=1.0))
    else:
        bar = {}
    for kind in kinds(places):
        found = [p for p in places.of_trials if kind_of(p) == kind]
        trace = _trace(found, places, bar if places.is_map else None)
        traces += _with_key(trace) if places.is_map and found[0].value is not None else [trace]
    # One colour bar is enough: all traces share the scale.
    for trace in [t for t in traces if "colorbar" in t["marker"]][1:]:
        del trace["marker"]["colorbar"]
    ring = [p for p in places.of_trials if best is not None and p.row.number == best.number]
    traces += [_ring(place) for place in ring]
    walls = [_wall("x", at) for at in places.x.walls] + [_wall("y", at) for at in places.y.walls]
    frame = layout(460, xaxis=_axis(places.x), yaxis=_axis(places.y), shapes=walls)
    return Chart(traces, frame)


def _trace(found: Sequence[Place], places: Places, bar: Any) -> Trace:
    first = found[0]
    size = 10 if len(places.of_trials) < MANY else 6
    marker: dict[str, Any] = {"symbol": SHAPES[first.shape], "size": size, "color": LOW}
    if first.value is None:
        marker = {"symbol": "x-thin", "size": size - 2, "color": GREY}
        marker["line"] = {"width": 1, "color": GREY}
    elif bar is not None:
        marker = {**marker, **bar, "color": lean(p.value for p in found)}
    if first.value is not None and not first.is_feasible:
        marker["symbol"] += "-open"
    is_few = len(found) <= FEW_POINTS
    return {
        "type": "scatter",
        "mode": "markers",
        "name": first.words,
        "x": lean(p.x for p in found),
        "y": lean(p.y for p in found),
        "customdata": [p.row.number for p in found],
        "text": [_words(p, places) if is_few else score(p.value) for p in found],
        "marker": marker,
        "hovertemplate": "trial %{customdata}<br>%{text}<extra></extra>",
    }


def _with_key(trace: Trace) -> list[Trace]:
    """A trace coloured by value, and its entry of the legend in grey: there a colour would read as a value.

    The entry is a trace without points; a click on it switches both.
    """
    group = {"legendgroup": trace["name"]}
    marker = {"symbol": trace["marker"]["symbol"], "size": trace["marker"]["size"], "color": GREY}
    key = {"type": "scatter", "mode": "markers", "name": trace["name"], "marker": marker}
    return [
        {**trace, **group, "showlegend": False},
        {**key, **group, "x": [None], "y": [None], "hoverinfo": "skip"},
    ]


def _words(place: Place, places: Places) -> str:
    value = "no value" if place.value is None else f"value {score(place.value)} gold"
    limits = "" if place.is_feasible else "<br>outside the limits"
    reason = "" if place.row.reason is None else f"<br>{markup(place.row.reason.value)}"
    return f"{setting_words(place.row, places.kl_unit)}<br>{value}{limits}{reason}"


def _ring(place: Place) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"recommended: trial {place.row.number}",
        "x": [short(place.x)],
        "y": [short(place.y)],
        "customdata": [place.row.number],
        "marker": {"symbol": "circle-open", "size": 20, "color": BEST, "line": {"width": 3}},
        "hoverinfo": "skip",
    }


def _axis(scale: Scale) -> Layout:
    if not scale.is_log:
        return axis(scale.title)
    return axis(
        scale.title,
        type="log",
        tickvals=[short(at) for at, _ in scale.ticks],
        ticktext=[label for _, label in scale.ticks],
        range=[short(math.log10(limit)) for limit in scale.limits],
    )


def _wall(side: str, at: float) -> Layout:
    """A line between a strip and the rest, from edge to edge."""
    across = {"xref": "x", "x0": short(at), "x1": short(at), "yref": "paper", "y0": 0, "y1": 1}
    along = {"yref": "y", "y0": short(at), "y1": short(at), "xref": "paper", "x0": 0, "x1": 1}
    place = across if side == "x" else along
    return {"type": "line", **place, "line": {"color": GREY, "width": 1}, "layer": "below"}
