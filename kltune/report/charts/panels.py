"""Heights in, panels one above the other on one horizontal axis out; lines, bands and thinning for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from kltune.report.charts.axes import Layout, Trace, axis, layout
from kltune.report.charts.numbers import lean

P = TypeVar("P")
MOST_POINTS = 600
"""Points of one line: more than a panel has pixels for."""
_AIR = 0.07


def panels(heights: Sequence[float], height: int, x_title: str, titles: Sequence[str]) -> Layout:
    """Layout with ``yaxis``, ``yaxis2``, ... from the top down, and the shared ``xaxis`` under the last."""
    scale = (1 - _AIR * (len(heights) - 1)) / sum(heights)
    top: float = 1.0
    found: Layout = {}
    for place, (share, title) in enumerate(zip(heights, titles, strict=True), start=1):
        bottom = max(0.0, top - share * scale)
        found[axis_name("yaxis", place)] = axis(title, domain=[round(bottom, 4), round(top, 4)])
        top = bottom - _AIR
    lowest = axis_name("y", len(heights))
    return {**layout(height, xaxis=axis(x_title, anchor=lowest)), **found}


def axis_name(stem: str, place: int) -> str:
    """``yaxis``, ``yaxis2``, ...; ``y``, ``y2``, ..."""
    return stem if place == 1 else f"{stem}{place}"


def line(
    name: str, points: Sequence[tuple[float, float]], panel: int, colour: str, hover: str
) -> Trace:
    """A line of (x, y) in one panel, thinned where there are more points than pixels."""
    kept = thinned(points)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": lean(x for x, _ in kept),
        "y": lean(y for _, y in kept),
        "yaxis": axis_name("y", panel),
        "line": {"width": 2, "color": colour},
        "hovertemplate": f"{hover}<extra></extra>",
    }


def dotted_line(trace: Trace, symbol: str = "circle") -> Trace:
    """The same with a mark at each point."""
    marker = {"size": 6, "symbol": symbol, "color": trace["line"]["color"]}
    return {**trace, "mode": "lines+markers", "marker": marker}


def band(points: Sequence[tuple[float, float, float]], panel: int, colour: str) -> Trace:
    """The area from low to high of (x, low, high); it answers no mouse and has no entry in the legend."""
    kept = [p for p in thinned(points) if all(math.isfinite(v) for v in p)]
    xs, lows, highs = ([p[i] for p in kept] for i in range(3))
    return {
        "type": "scatter",
        "mode": "lines",
        "x": lean([*xs, *reversed(xs)]),
        "y": lean([*highs, *reversed(lows)]),
        "yaxis": axis_name("y", panel),
        "fill": "toself",
        "fillcolor": faint(colour),
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def faint(colour: str, share: float = 0.2) -> str:
    """``#rrggbb`` as a colour that lets through what lies below."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{share})"


def thinned(points: Sequence[P], most: int = MOST_POINTS) -> list[P]:
    """At most ``most`` of them, evenly spaced, both ends kept."""
    if len(points) <= most:
        return list(points)
    last = len(points) - 1
    return [points[round(i * last / (most - 1))] for i in range(most)]
