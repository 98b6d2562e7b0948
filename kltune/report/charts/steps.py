"""One trial in, the chart of its gold, proxy, KL and beta over the steps out."""

from __future__ import annotations

import math

from kltune.report.charts.axes import Layout, Trace, axis, mark_upright, wrapped
from kltune.report.charts.numbers import short
from kltune.report.charts.panels import band, dotted_line, line, panels
from kltune.report.colours import BETA_COLOUR, GOLD_COLOUR, KL_COLOUR, PROXY_COLOUR
from kltune.report.document import Chart
from kltune.report.rows import TrialRow
from kltune.spec.trial import KLUnit
from kltune.trial.words import KL_UNIT

Span = tuple[float, float]


def steps_chart(
    row: TrialRow, unit: KLUnit, beta_unit: str, spans: tuple[Span, Span, Span]
) -> Chart:
    """Gold and proxy of the evaluations, KL with its target (left) and beta (right) of the steps; ``spans``: axes of the first three."""
    head = f"trial {row.number}, step %{{x}}<br>"
    traces: list[Trace] = []
    for panel, (field, colour) in enumerate(
        (("gold", GOLD_COLOUR), ("proxy", PROXY_COLOUR)), start=1
    ):
        points = [c for c in row.checkpoints if math.isfinite(getattr(c, field))]
        scores = [(c.step, getattr(c, field), getattr(c, f"{field}_se")) for c in points]
        traces.append(band([(s, v - e, v + e) for s, v, e in scores], panel, colour))
        drawn = line(field, [(s, v) for s, v, _ in scores], panel, colour, f"{head}{field} %{{y}}")
        traces.append(dotted_line(drawn, "circle" if field == "gold" else "square"))
    steps, kl = row.curve.step, row.curve.kl_token if unit is KLUnit.TOKEN else row.curve.kl_seq
    kl_words, beta_words = f"KL ({KL_UNIT[unit]})", f"beta ({beta_unit})"
    hover = f"{head}KL %{{y}} {KL_UNIT[unit]}"
    traces.append(line("KL (left)", list(zip(steps, kl, strict=True)), 3, KL_COLOUR, hover))
    targets = list(zip(steps, row.curve.target, strict=True))
    if any(math.isfinite(target) for _, target in targets):
        hover = f"{head}target of KL %{{y}} {KL_UNIT[unit]}"
        aim = line("target of KL (left)", targets, 3, KL_COLOUR, hover)
        aim["line"] |= {"dash": "dot", "width": 1.2}
        traces.append(aim)
    hover = f"{head}beta %{{y}} {beta_unit}"
    beta = line(
        "beta (right)", list(zip(steps, row.curve.beta, strict=True)), 4, BETA_COLOUR, hover
    )
    beta["line"]["dash"] = "dash"
    traces.append(beta)
    for trace in traces:
        if "hoverinfo" not in trace:
            trace["customdata"] = [row.number] * len(trace["x"])
    frame = panels((1, 1, 1.2), 560, "step", ("gold", "proxy", kl_words))
    for name, span in zip(("yaxis", "yaxis2", "yaxis3"), spans, strict=True):
        frame[name]["range"] = [short(end) for end in span]
    frame["yaxis4"] = _right(wrapped(beta_words))
    if row.peak is not None:
        mark_upright(frame, row.peak.step, f"peak, step {row.peak.step}")
    return Chart(traces, frame)


def _right(title: str) -> Layout:
    """The axis of beta, over the panel of KL; its grid would cross the other's."""
    return axis(
        title, overlaying="y3", side="right", rangemode="tozero", showgrid=False, tickmode="auto"
    )
