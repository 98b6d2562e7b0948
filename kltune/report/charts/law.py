"""The law's findings in, the chart of gold gained against the square root of KL out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kltune.report.charts.axes import Layout, Trace, axis, layout, with_gaps
from kltune.report.charts.numbers import lean, short
from kltune.report.charts.panels import faint
from kltune.report.colours import BEST, GREY, HIGH, LOW, WORST
from kltune.report.document import Chart
from kltune.report.law_findings import LawFindings, TrialLaw
from kltune.statistics.law import LawFit, LawVerdict
from kltune.trial.words import number

_HOVER = "trial %{customdata}<br>gold %{y} over its start at √KL %{x}<extra></extra>"


def law_chart(found: LawFindings, d_max: float, span: tuple[float, float]) -> Chart:
    """All trials as one trace, the recommended one, the pooled law, and the band of its peak."""
    best = None if found.beta is None else found.beta.law
    others = [law for law in found.trials if law is not best]
    traces: list[Trace] = []
    if others:
        look = {"color": LOW, "size": 5}
        line = {"width": 0.5, "color": GREY}
        traces.append({**_points(others), "name": "other trials", "line": line, "marker": look})
    traces += _law(found.pooled, d_max)
    if best is not None:
        look = {"color": BEST, "size": 9, "symbol": "diamond"}
        name = f"recommended: trial {best.row.number}"
        line = {"width": 3, "color": BEST}
        traces.append({**_points([best]), "name": name, "line": line, "marker": look})
    frame = layout(
        430,
        xaxis=axis("√(KL in nats/sequence)", range=[0, short(d_max)]),
        yaxis=axis("gold over gold at the start (select prompts)", range=lean(span)),
        **_peak(found.pooled, d_max),
    )
    return Chart(traces, frame)


def _points(laws: Sequence[TrialLaw]) -> Trace:
    """The evaluations of some trials, each from its start at 0."""
    xs = [[0, *lean(law.points.d_P.tolist())] for law in laws]
    ys = [[0, *lean(law.points.gain_PN.mean(axis=1).tolist())] for law in laws]
    numbers = [[law.row.number] * len(x) for law, x in zip(laws, xs, strict=True)]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": with_gaps(xs),
        "y": with_gaps(ys),
        "customdata": with_gaps(numbers),
        "hovertemplate": _HOVER,
    }


def _law(fit: LawFit, d_max: float) -> list[Trace]:
    if fit.a is None:
        return []
    d_P = np.linspace(1e-3, min(d_max, math.sqrt(fit.kl_range[1])), 120)
    is_rejected = fit.verdict is LawVerdict.REJECTED
    name = f"law of all trials{' (rejected)' if is_rejected else ''}"
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": lean(d_P.tolist()),
            "y": lean(fit.gain(d_P).tolist()),
            "line": {"width": 2.5, "color": WORST, "dash": "dash" if is_rejected else "solid"},
            "hovertemplate": f"{name}<br>gold %{{y}} over the start at √KL %{{x}}<extra></extra>",
        }
    ]


def _peak(fit: LawFit, d_max: float) -> Layout:
    """The band where the peak lies with 95 % confidence; nothing where it isn't identified."""
    peak = fit.kl_peak
    if peak is None or fit.verdict is not LawVerdict.IDENTIFIED:
        return {}
    low, high = math.sqrt(peak.low), min(d_max, math.sqrt(peak.high))
    across: Layout = {"xref": "x", "yref": "paper", "y0": 0, "y1": 1}
    middle = short(math.sqrt(peak.value))
    shapes: list[Layout] = [
        {
            **across,
            "type": "rect",
            "x0": short(low),
            "x1": short(high),
            "fillcolor": faint(HIGH),
            "line": {"width": 0},
            "layer": "below",
        },
        {**across, "type": "line", "x0": middle, "x1": middle, "line": {"color": HIGH, "width": 2}},
    ]
    text = f"KL* = {number(peak.value)} ({number(peak.low)} to {number(peak.high)}) nats/sequence"
    note: Layout = {"x": middle, "xref": "x", "y": 0, "yref": "paper", "text": text}
    note |= {"yanchor": "bottom", "xanchor": "left", "showarrow": False}
    return {"shapes": shapes, "annotations": [note]}
