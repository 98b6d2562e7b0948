"""Settings as heights on axes in, the chart of all of them as parallel coordinates out."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from kltune.report.canvas import PAPER
from kltune.report.charts.axes import Layout, Trace, layout, markup, with_gaps
from kltune.report.charts.numbers import lean, short
from kltune.report.colours import BEST, SCALE
from kltune.report.document import Chart
from kltune.trial.words import score

_BANDS = 5
"""Colours: a line has one, and so many traces stay quick."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One setting; all tuples have one entry a trial."""

    title: str
    heights: Sequence[float]
    """Of each trial, 0 to 1; below 0 where it has no such setting."""
    words: Sequence[str]
    """The setting of each trial."""
    ticks: Sequence[tuple[float, str]]


@dataclass(frozen=True, slots=True)
class Line:
    """One trial."""

    number: int
    value: float
    is_feasible: bool
    is_best: bool


def parallel_chart(axes: Sequence[Axis], lines: Sequence[Line]) -> Chart:
    """Lines in traces by band of value and by whether they respect the limits; the recommended one on top."""
    values = [line.value for line in lines]
    low, high = min(values), max(values)
    traces: list[Trace] = []
    for band in range(_BANDS):
        for is_feasible in (True, False):
            held = [
                place
                for place, line in enumerate(lines)
                if not line.is_best
                and line.is_feasible is is_feasible
                and _band(line.value, low, high) == band
            ]
            if held:
                traces.append(_trace(axes, lines, held, _look(band, is_feasible=is_feasible)))
    best = [place for place, line in enumerate(lines) if line.is_best]
    if best:
        look = {"width": 4, "color": BEST, "dash": "solid"}
        traces.append(
            _trace(axes, lines, best, look, f"recommended: trial {lines[best[0]].number}")
        )
    frame = layout(
        400,
        xaxis={
            "tickvals": list(range(len(axes))),
            "ticktext": [axis.title.replace("\n", "<br>") for axis in axes],
            "range": [-0.1, len(axes) - 0.6],
            "automargin": True,
            "zeroline": False,
        },
        yaxis={"visible": False, "range": [-0.22, 1.08], "fixedrange": True},
        annotations=[
            _tick(x, height, label) for x, axis in enumerate(axes) for height, label in axis.ticks
        ],
    )
    return Chart(traces, frame)


def _band(value: float, low: float, high: float) -> int:
    share = (value - low) / (high - low) if high > low else 0.5
    return min(_BANDS - 1, int(share * _BANDS))


def _look(band: int, *, is_feasible: bool) -> Layout:
    """Colour of the band's middle on the scale that goes from blue over grey to orange."""
    colour = blend((band + 0.5) / _BANDS)
    return {"width": 1.5, "color": colour, "dash": "solid" if is_feasible else "dot"}


def blend(share: float) -> str:
    """The colour at a share, 0 to 1, of the scale from low to high."""
    for (start, first), (end, second) in itertools.pairwise(SCALE):
        if share <= end:
            part = (share - start) / (end - start)
            pairs = ((int(first[i : i + 2], 16), int(second[i : i + 2], 16)) for i in (1, 3, 5))
            return "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in pairs)
    return SCALE[-1][1]


def _trace(
    axes: Sequence[Axis],
    lines: Sequence[Line],
    held: Sequence[int],
    look: Layout,
    name: str | None = None,
) -> Trace:
    values = [lines[place].value for place in held]
    outside = "" if look["dash"] == "solid" else ", outside the limits"
    low, high = score(min(values)), score(max(values))
    named = f"value {low if low == high else f'{low} to {high}'}{outside}"
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": named if name is None else name,
        "x": with_gaps([list(range(len(axes))) for _ in held]),
        "y": with_gaps([lean((axis.heights[p] for axis in axes), 3) for p in held]),
        "customdata": with_gaps([[lines[p].number] * len(axes) for p in held]),
        "text": with_gaps([[markup(axis.words[p]) for axis in axes] for p in held]),
        "line": look,
        "marker": {"size": 4, "color": look["color"]},
        "hovertemplate": "trial %{customdata}<br>%{x}: %{text}<extra></extra>",
    }


def _tick(x: int, height: float, label: str) -> Layout:
    return {
        "x": x,
        "y": short(height),
        "text": markup(label),
        "xanchor": "left",
        "xshift": 5,
        "bgcolor": PAPER,
        "opacity": 0.85,
        "showarrow": False,
    }
