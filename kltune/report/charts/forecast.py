"""A forecast and the trials in, the chart of one score against KL out: what was forecast and what came."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kltune.preview.result import Curve, Forecast
from kltune.report.charts.axes import Trace, axis, layout
from kltune.report.charts.numbers import lean
from kltune.report.charts.panels import band
from kltune.report.colours import GREY
from kltune.report.document import Chart
from kltune.report.rows import TrialRow

_NAMES = {"tilt": "forecast: best policy at each beta", "best-of-n": "forecast: best of n"}


def forecast_chart(
    rows: Sequence[TrialRow], forecast: Forecast, field: str, reach: float, colour: str
) -> Chart:
    """The curves with their 95 % bands, and every evaluation up to ``reach`` nats per sequence as a dot."""
    traces: list[Trace] = []
    for curve in forecast.curves:
        traces += _curve(curve, field, colour)
    dots = [
        (row.number, c.step, c.kl_seq, value)
        for row in rows
        for c in row.checkpoints
        if c.kl_seq <= reach and math.isfinite(value := getattr(c, field))
    ]
    traces.append(
        {
            "type": "scatter",
            "mode": "markers",
            "name": "evaluations of the trials",
            "x": lean(kl for _, _, kl, _ in dots),
            "y": lean(value for _, _, _, value in dots),
            "customdata": [number for number, _, _, _ in dots],
            "text": [step for _, step, _, _ in dots],
            "marker": {"size": 5, "color": GREY},
            "hovertemplate": (
                f"trial %{{customdata}}, step %{{text}}<br>{field} %{{y}} at KL %{{x}} nats/sequence<extra></extra>"
            ),
        }
    )
    frame = layout(
        400,
        xaxis=axis("KL in nats/sequence", rangemode="tozero"),
        yaxis=axis(f"{field}, mean over select prompts"),
    )
    return Chart(traces, frame)


def _curve(curve: Curve, field: str, colour: str) -> list[Trace]:
    kls = [point.kl_seq for point in curve.points]
    values = [point.gold if field == "gold" else point.proxy for point in curve.points]
    ends = [(v.low, v.high) for v in values]
    area = [
        (kl, low, high)
        for kl, (low, high) in zip(kls, ends, strict=True)
        if low is not None and high is not None
    ]
    name = _NAMES.get(curve.kind, curve.kind)
    dash = "solid" if curve.kind == "tilt" else "dash"
    line: Trace = {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": lean(kls),
        "y": lean(v.value for v in values),
        "line": {"width": 2.5, "color": colour, "dash": dash},
        "hovertemplate": f"{name}<br>{field} %{{y}} at KL %{{x}} nats/sequence<extra></extra>",
    }
    return [band(area, 1, colour), line]
