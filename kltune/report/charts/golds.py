"""Checkpoints by two golds in, the chart of one gold against the other out."""

from __future__ import annotations

from collections.abc import Sequence

from kltune.report.canvas import INK
from kltune.report.charts.axes import Trace, axis, layout, markup
from kltune.report.charts.numbers import lean, short
from kltune.report.colours import BEST, GREY, HIGH, LOW
from kltune.report.document import Chart
from kltune.report.golds import Front, Spot
from kltune.report.rows import TrialRow


def golds_chart(front: Front, best: TrialRow | None) -> Chart:
    """All checkpoints, those beaten by none, step 0, and the recommended one with its standard errors."""
    other = markup(front.name)
    traces = [
        _dots(front.outside, "beyond the KL limit", GREY, "circle-open", other),
        _dots(front.spots, "checkpoint", LOW, "circle", other),
    ]
    beaten_by_none = _dots(front.best, "beaten by none", HIGH, "square", other)
    traces.append({**beaten_by_none, "mode": "lines+markers", "line": {"width": 2, "color": HIGH}})
    if front.start is not None:
        place = (front.start.gold, front.start.others[front.name].mean)
        traces.append(_point(place, "step 0", INK, "diamond-open", other))
    peak = None if best is None else best.peak
    if best is not None and peak is not None and front.name in peak.others:
        value = peak.others[front.name]
        point = _point((peak.gold, value.mean), "recommended ± s.e.", BEST, "diamond", other)
        errors = (("error_x", peak.gold_se), ("error_y", value.se))
        point |= {name: {"type": "data", "array": [short(se)]} for name, se in errors}
        traces.append({**point, "customdata": [best.number]})
    frame = layout(
        430,
        xaxis=axis("gold (objective, select prompts)"),
        yaxis=axis(f"{other} (select prompts)"),
    )
    if front.floor is not None:
        frame["shapes"] = [
            {
                "type": "line",
                "xref": "paper",
                "x0": 0,
                "x1": 1,
                "y0": short(front.floor),
                "y1": short(front.floor),
                "line": {"color": INK, "width": 1, "dash": "dash"},
                "label": {"text": "lowest allowed", "textposition": "start"},
            }
        ]
    return Chart([trace for trace in traces if trace["x"]], frame)


def _dots(spots: Sequence[Spot], name: str, colour: str, symbol: str, other: str) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": lean(spot.place[0] for spot in spots),
        "y": lean(spot.place[1] for spot in spots),
        "customdata": [spot.row.number for spot in spots],
        "text": [spot.checkpoint.step for spot in spots],
        "marker": {"color": colour, "symbol": symbol, "size": 6},
        "hovertemplate": (
            f"trial %{{customdata}}, step %{{text}}<br>gold %{{x}}, {other} %{{y}}<extra></extra>"
        ),
    }


def _point(place: tuple[float, float], name: str, colour: str, symbol: str, other: str) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": lean(place[:1]),
        "y": lean(place[1:]),
        "marker": {"color": colour, "symbol": symbol, "size": 11},
        "hovertemplate": f"{name}<br>gold %{{x}}, {other} %{{y}}<extra></extra>",
    }
