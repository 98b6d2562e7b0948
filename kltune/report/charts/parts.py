"""What the parts of a weighted proxy gave, step by step, in; one panel a part out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kltune.report.charts.axes import mark_upright, wrapped
from kltune.report.charts.panels import line, panels
from kltune.report.colours import PROXY_COLOUR
from kltune.report.document import Chart
from kltune.report.rows import TrialRow

Points = Sequence[tuple[float, float]]
"""(step, mean of the part over the step's completions)."""
_PANEL = 130


def parts_chart(row: TrialRow, curves: Mapping[str, Points]) -> Chart:
    """``curves``: by the name of the part, in its own unit, before its weight."""
    traces = [
        line(name, points, panel, PROXY_COLOUR, f"trial {row.number}, step %{{x}}<br>{name} %{{y}}")
        for panel, (name, points) in enumerate(curves.items(), start=1)
    ]
    for trace in traces:
        trace["customdata"] = [row.number] * len(trace["x"])
        trace["showlegend"] = False
    heights = [1.0] * len(curves)
    frame = panels(heights, 60 + _PANEL * len(curves), "step", [wrapped(name) for name in curves])
    if row.peak is not None:
        mark_upright(frame, row.peak.step, f"peak, step {row.peak.step}")
    return Chart(traces, frame)
