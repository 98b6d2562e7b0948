"""Amounts of the parts of a whole in, the chart of one stacked bar out."""

from __future__ import annotations

from collections.abc import Sequence

from kltune.report.canvas import PAPER
from kltune.report.charts.axes import Trace, layout, markup
from kltune.report.charts.numbers import short
from kltune.report.document import Chart


def bar_chart(title: str, parts: Sequence[tuple[str, float, str]], labels: Sequence[str]) -> Chart:
    """One segment a part, (name, amount, colour); its label says name and amount with the unit."""
    traces: list[Trace] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": markup(label),
            "text": [markup(label)],
            "textposition": "inside",
            "insidetextanchor": "middle",
            "textangle": 0,
            "x": [short(amount)],
            "y": [""],
            "marker": {"color": colour, "line": {"color": PAPER, "width": 1}},
            "hovertemplate": f"{markup(label)}<extra></extra>",
        }
        for (_, amount, colour), label in zip(parts, labels, strict=True)
    ]
    total = sum(amount for _, amount, _ in parts)
    frame = layout(
        130 + 18 * len(parts),
        barmode="stack",
        uniformtext={"minsize": 11, "mode": "hide"},
        xaxis={"visible": False, "range": [0, short(total)], "fixedrange": True},
        yaxis={"visible": False, "fixedrange": True},
        title={"text": markup(title), "x": 0, "font": {"size": 13}},
        margin={"l": 8, "r": 8, "t": 36, "b": 8},
    )
    # Under the bar, one line an entry, in the order of the segments.
    frame["legend"] = {"x": 0, "y": 0, "yanchor": "top", "traceorder": "normal"}
    frame["legend"]["maxheight"] = 400  # px: else it scrolls after half the height
    return Chart(traces, frame)
