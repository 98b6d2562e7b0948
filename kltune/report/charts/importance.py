"""Shares in, the chart of what mattered out."""

from __future__ import annotations

from collections.abc import Mapping

from kltune.report.charts.axes import axis, layout, markup
from kltune.report.charts.numbers import lean
from kltune.report.colours import LOW
from kltune.report.document import Chart


def importance_chart(shares: Mapping[str, float]) -> Chart:
    """One bar a searched parameter, the largest on top."""
    names = sorted(shares, key=lambda name: shares[name])
    values = [shares[name] for name in names]
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": lean(100 * value for value in values),
        "y": [markup(name) for name in names],
        "text": [f"{100 * value:.0f} %" for value in values],
        "textposition": "outside",
        "cliponaxis": False,
        "marker": {"color": LOW},
        "hovertemplate": "%{y} explains %{x} % of the variance of the value<extra></extra>",
    }
    top = 100 * (max(values, default=0) * 1.15 or 1)
    frame = layout(
        110 + 34 * len(names),
        legend=False,
        xaxis=axis("variance of the value explained (%)", range=[0, round(top, 1)]),
        yaxis=axis("", type="category"),
    )
    return Chart([bars], frame)
