"""A trial's tokens in, the charts of where its KL lies out: heat map, profiles, and curves over the steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from numpy.typing import NDArray

from kltune.report.charts.axes import Layout, Trace, axis, layout, mark_upright, wrapped
from kltune.report.charts.numbers import lean, short
from kltune.report.charts.panels import axis_name, dotted_line, line, panels
from kltune.report.charts.parallel import blend
from kltune.report.document import Chart
from kltune.trial.words import number

_STOPS = 16
Points = Sequence[tuple[float, float]]


def heat_chart(
    x_edges: Sequence[float],
    y_edges: Sequence[int],
    kl_PS: NDArray,
    top: float,
    shown: tuple[int, int | None],
) -> Chart:
    """Mean KL by position (up) and step (right); colour by the square root of KL up to ``top``, nats per token.

    ``shown``: the position up to which it is drawn, and the step of the peak of gold if it is marked.
    """
    shares = [stop / _STOPS for stop in range(_STOPS + 1)]
    ticks = [share * top for share in (0, 0.04, 0.16, 0.36, 0.64, 1)]
    heat = {
        "type": "heatmap",
        "x": lean(x_edges),
        "y": list(y_edges),
        "z": [lean(row, 3) for row in kl_PS.tolist()],
        "zmin": 0,
        "zmax": short(top),
        # Stops at the squares of even shares: colour goes with the square root.
        "colorscale": [[share**2, blend(share)] for share in shares],
        "hoverongaps": False,
        "colorbar": {
            "title": {"text": "mean exact KL (nats/token)", "side": "right"},
            "thickness": 12,
            "tickvals": lean(ticks[:1] + ticks[2:]),
            "ticktext": [number(tick, 2) for tick in (ticks[:1] + ticks[2:])],
        },
        "hovertemplate": "step %{x:.0f}, position %{y:.0f}<br>mean exact KL %{z} nats/token<extra></extra>",
    }
    frame = layout(
        520,
        legend=False,
        xaxis=axis("step"),
        yaxis=axis("position in the completion (tokens)", range=[0, shown[0]]),
    )
    if shown[1] is not None:
        mark_upright(frame, shown[1], "peak of gold")
    return Chart([heat], frame)


def profile_chart(
    moments: Sequence[tuple[str, str, Points, Points]], last_position: float
) -> Chart:
    """KL and tokens per step by position, of (words, colour, KL, tokens) at each moment."""
    symbols = ("circle", "diamond", "square")
    dashes = ("dot", "solid", "dash")
    traces: list[Trace] = []
    for place, (words, colour, kl, tokens) in enumerate(moments):
        for panel, points, unit in ((1, kl, "nats/token"), (2, tokens, "tokens per step")):
            hover = f"{words}<br>position %{{x}}: %{{y}} {unit}"
            drawn = dotted_line(line(words, points, panel, colour, hover), symbols[place % 3])
            drawn["line"]["dash"] = dashes[place % 3]
            drawn |= {"legendgroup": words, "showlegend": panel == 1}
            traces.append(drawn)
    titles = ("exact KL (nats/token)", "tokens<br>per step")
    frame = panels((2.4, 1), 520, "position in the completion (tokens)", titles)
    frame["xaxis"]["range"] = [-0.5, last_position]
    for name in ("yaxis", "yaxis2"):
        frame[name]["rangemode"] = "tozero"
    return Chart(traces, frame)


def curves_chart(
    wanted: Sequence[tuple[str, float, Mapping[str, tuple[str, str, Points]]]],
) -> Chart:
    """Panels of lines over the steps: (title, height, lines by name); a line is (colour, dash, points).

    A panel whose title names nats is logarithmic, as what is not above 0 there is left out.
    """
    traces: list[Trace] = []
    titles = [title for title, _, _ in wanted]
    frame = panels(
        [height for _, height, _ in wanted],
        130 + 130 * len(wanted),
        "step",
        list(map(wrapped, titles)),
    )
    for panel, (title, _, lines) in enumerate(wanted, start=1):
        is_log = "nats" in title
        frame[axis_name("yaxis", panel)].update(_span(is_log=is_log, title=title))
        for name, (colour, dash, points) in lines.items():
            kept = [p for p in points if math.isfinite(p[1]) and (p[1] > 0 or not is_log)]
            hover = f"step %{{x}}<br>{title}: {name} %{{y}}"
            drawn = line(name, kept, panel, colour, hover)
            drawn["line"]["dash"] = dash
            traces.append(drawn if len(kept) > 1 else dotted_line(drawn))
    return Chart(traces, frame)


def _span(*, is_log: bool, title: str) -> Layout:
    if is_log:
        return {"type": "log", "dtick": 1}
    return {"range": [-1.05, 1.05] if "correlation" in title else [-0.03, 1.03]}
