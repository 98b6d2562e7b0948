"""A forecast and the trials in, two drawings out: gold and proxy against KL, what was forecast and what came."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kltune.preview.result import Curve, Forecast
from kltune.report.canvas import INK, Trace, draw_traces, drawing
from kltune.report.charts.forecast import forecast_chart
from kltune.report.colours import GOLD_COLOUR, PROXY_COLOUR
from kltune.report.document import Figure
from kltune.report.rows import StudyRows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FURTHEST = 1.6
"""KL that is shown, as a multiple of what the forecast's curves reach: trials that went astray don't squeeze the rest."""

_DOTS = 60
"""Dots in one path; each is two places."""


def forecast_figures(study: StudyRows, forecast: Forecast) -> tuple[Figure, Figure]:
    """Curves with their 95 % bands, and every evaluation of every trial as a dot."""
    reach = max(curve.seen_kl_seq for curve in forecast.curves) * _FURTHEST
    return (
        Figure(
            _draw(study, forecast, "gold", reach),
            "Gold against KL: forecast (line: best policy at each beta; dashes: best of n; bands: 95 %) and the evaluations of "
            "all trials (dots).",
            chart=forecast_chart(study.trials, forecast, "gold", reach, GOLD_COLOUR),
        ),
        Figure(
            _draw(study, forecast, "proxy", reach),
            "Proxy against KL. The line is the most that any policy can have at that KL; how far dots lie below it is what KL "
            "efficiency says.",
            chart=forecast_chart(study.trials, forecast, "proxy", reach, PROXY_COLOUR),
        ),
    )


def _draw(study: StudyRows, forecast: Forecast, field: str, reach: float) -> str:
    colour = GOLD_COLOUR if field == "gold" else PROXY_COLOUR
    with drawing(5.0, 3.4) as (canvas, out):
        axes = canvas.add_subplot()
        for curve in forecast.curves:
            _band(axes, curve, field, colour)
        dots = [
            (c.kl_seq, value)
            for row in study.trials
            for c in row.checkpoints
            if c.kl_seq <= reach and math.isfinite(value := getattr(c, field))
        ]
        # Lines without width, and the dots of each as one path: matplotlib simplifies a path of 128 places
        # or more, and of dots nothing would be left.
        pieces = [dots[first : first + _DOTS] for first in range(0, len(dots), _DOTS)]
        draw_traces(axes, [Trace(piece, INK) for piece in pieces], width=0.0, dot=2.6, zorder=3)
        axes.autoscale_view()
        axes.set_xlim(left=0)
        axes.set_xlabel("KL in nats/sequence")
        axes.set_ylabel(f"{field}, mean over select prompts")
        axes.spines["right"].set_visible(False)
    return out[0]


def _band(axes: Axes, curve: Curve, field: str, colour: str) -> None:
    kl = [point.kl_seq for point in curve.points]
    values = [getattr(point, field) for point in curve.points]
    low, high = [v.low for v in values], [v.high for v in values]
    axes.fill_between(kl, low, high, color=colour, alpha=0.15, linewidth=0)
    style = "-" if curve.kind == "tilt" else "--"
    axes.plot(kl, [v.value for v in values], style, color=colour, linewidth=1.5)
