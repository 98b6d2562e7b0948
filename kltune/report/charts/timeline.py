"""A study in, the chart of how its trials went out."""

from __future__ import annotations

from collections.abc import Sequence

from kltune.report.charts.axes import Layout, Trace, axis, layout, markup, setting_words
from kltune.report.charts.numbers import lean
from kltune.report.colours import GREY
from kltune.report.document import Chart
from kltune.report.endings import Ending, endings
from kltune.report.rows import StudyRows, TrialRow
from kltune.trial.words import duration, score

MOST_PATTERNED = 150
"""Trials up to which bars carry a pattern; thinner ones would show nothing of it."""
_LONGEST = 110
"""Characters of a guard's words that a box beside the mouse has room for."""


def timeline_chart(study: StudyRows) -> Chart:
    """One trace of bars for each way to end, so that the legend switches each; marks at the peaks."""
    is_patterned = len(study.trials) <= MOST_PATTERNED
    traces = [
        _bars(study, ending, rows, is_patterned=is_patterned)
        for ending, rows in endings(study.trials)
    ]
    peaks = _peaks(study.trials, is_wide=is_patterned)
    if peaks["x"]:
        traces.append(peaks)
    planned: Layout = {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "yref": "y",
        "y0": study.spec.trainer.steps,
        "y1": study.spec.trainer.steps,
        "line": {"color": GREY, "width": 1, "dash": "dash"},
    }
    frame = layout(
        360,
        xaxis=axis("trial", tickformat="d"),
        yaxis=axis("steps trained", rangemode="tozero"),
        barmode="overlay",
        bargap=0.2 if is_patterned else 0,
        shapes=[planned],
    )
    return Chart(traces, frame)


def _bars(
    study: StudyRows, ending: Ending, rows: Sequence[TrialRow], *, is_patterned: bool
) -> Trace:
    marker: Layout = {"color": ending.colour, "line": {"width": 0}}
    if is_patterned and ending.pattern:
        # fillmode overlay: pattern in a contrast that plotly.js picks over the bar's own colour.
        marker["pattern"] = {"shape": ending.pattern, "fillmode": "overlay", "size": 6}
    return {
        "type": "bar",
        "name": f"{ending.words} ({len(rows)})",
        "x": [row.number for row in rows],
        "y": [row.steps_run for row in rows],
        "customdata": [row.number for row in rows],
        # Without it a bar is as wide as the smallest distance of its own trace.
        "width": 0.8 if is_patterned else 1,
        "text": [_words(study, row) for row in rows],
        "textposition": "none",
        "marker": marker,
        "hovertemplate": (
            f"trial %{{customdata}}: {ending.words} after %{{y}} steps<br>%{{text}}<extra></extra>"
        ),
    }


def _words(study: StudyRows, row: TrialRow) -> str:
    """Setting, value and seconds; with few trials what the guard said as well."""
    value = "no value" if row.value is None else f"value {score(row.value)} gold"
    parts = [
        setting_words(row, study.spec.kl_unit),
        f"{value}, {duration(row.seconds)} in its slot",
    ]
    if len(study.trials) <= MOST_PATTERNED and row.detail:
        cut = row.detail if len(row.detail) <= _LONGEST else f"{row.detail[:_LONGEST]}…"
        parts.append(markup(cut))
    return "<br>".join(parts)


def _peaks(rows: Sequence[TrialRow], *, is_wide: bool) -> Trace:
    found = [(row, row.peak) for row in rows if row.peak is not None]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "judged at",
        "x": [row.number for row, _ in found],
        "y": [peak.step for _, peak in found],
        "customdata": [row.number for row, _ in found],
        "text": lean(peak.gold for _, peak in found),
        "marker": {
            "symbol": "diamond" if is_wide else "circle",
            "size": 8 if is_wide else 3,
            "color": "#ffffff",
            "line": {"color": "#1f2937", "width": 1.5 if is_wide else 0.8},
        },
        "hovertemplate": (
            "trial %{customdata}: gold %{text} at step %{y}, the checkpoint it is judged by<extra></extra>"
        ),
    }
