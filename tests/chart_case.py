"""A chart in; what plotly itself makes of it, and its points by trace, out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from kltune.report.document import Chart


def accepted(chart: Chart | None) -> Chart:
    """The chart, once plotly knows every name and value in it and it is strict JSON."""
    assert chart is not None
    go.Figure({"data": list(chart.traces), "layout": dict(chart.layout)})
    json.dumps([list(chart.traces), dict(chart.layout)], allow_nan=False)
    return chart


def size(chart: Chart) -> int:
    """Bytes of it as the page holds it."""
    text = json.dumps([list(chart.traces), dict(chart.layout)], separators=(",", ":"))
    return len(text.encode())


def named(chart: Chart, start: str) -> Mapping[str, Any]:
    """The one trace whose name starts so."""
    (trace,) = [t for t in chart.traces if str(t.get("name", "")).startswith(start)]
    return trace


def names(chart: Chart) -> list[str]:
    """Of all traces, in the order that they are drawn."""
    return [str(trace.get("name", "")) for trace in chart.traces]
