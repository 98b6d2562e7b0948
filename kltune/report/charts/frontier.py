"""Trials in, the chart of gold or proxy against the square root of KL out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kltune.report.canvas import INK
from kltune.report.charts.axes import (
    FEW_POINTS,
    Trace,
    axis,
    layout,
    log_colour_bar,
    setting_words,
    with_gaps,
    wrapped,
)
from kltune.report.charts.numbers import lean, short
from kltune.report.charts.panels import thinned
from kltune.report.colours import BEST, GREY, LOW, WORST
from kltune.report.document import Chart
from kltune.report.overlays import Line, Overlay
from kltune.report.rows import Checkpoint, TrialRow
from kltune.trial.words import number

_FEWEST = 3
"""Evaluations of a trial that are always drawn: start, peak and end."""
_DASHES = ("dot", "dashdot")


@dataclass(frozen=True, slots=True)
class Named:
    """The trials that stand out."""

    best: TrialRow | None
    worst: TrialRow | None


def frontier_chart(
    rows: Sequence[TrialRow], named: Named, field: str, beta_unit: str, over: Overlay | None
) -> Chart:
    """One trace for all that don't stand out, one for beta = 0, one each for those that do, and the curves.

    Of many trials some evaluations are left out, so that a browser draws it in a moment; the picture has all.
    """
    marked = [row for row in (named.worst, named.best) if row is not None]
    others = [row for row in rows if all(row.number != one.number for one in marked)]
    penalised = [row for row in others if row.setting.beta > 0]
    free = [row for row in others if row.setting.beta == 0]
    is_few = sum(len(row.checkpoints) for row in rows) <= FEW_POINTS
    build = _Traces(field, over if is_few else None, max(_FEWEST, FEW_POINTS // max(1, len(rows))))
    traces: list[Trace] = []
    if penalised:
        look = _by_beta(rows, penalised, build, beta_unit)
        name = "other trials" if is_few else f"other trials ({build.most} evaluations of each)"
        traces.append(build.many(penalised, name, look))
    if free:
        look = {"color": INK, "symbol": "x", "size": 6}
        traces.append(build.many(free, "beta = 0", look, dash="dash"))
    if named.worst is not None and (named.best is None or named.worst.number != named.best.number):
        name = f"most over-optimised: {_name(named.worst)}"
        traces.append(build.one(named.worst, name, WORST, "square"))
    if named.best is not None:
        traces.append(build.one(named.best, f"recommended: {_name(named.best)}", BEST, "diamond"))
    if over is not None:
        traces += [_curve(line, place) for place, line in enumerate(over.of(field))]
    frame = layout(
        430,
        xaxis=axis("√(KL in nats/sequence)"),
        yaxis=axis(f"{field} (select prompts)"),
    )
    return Chart(traces, frame)


class _Traces:
    """Traces of one score; each point says its step and, where there is room, KL and setting."""

    def __init__(self, field: str, over: Overlay | None, most: int) -> None:
        self.most = most
        self._field = field
        self._over = over
        self._hover = (
            f"trial %{{customdata}}, step %{{text}}<br>{field} %{{y}} at √KL %{{x}}<extra></extra>"
        )

    def many(
        self, rows: Sequence[TrialRow], name: str, marker: dict[str, Any], dash: str = "solid"
    ) -> Trace:
        """Thin lines, with a gap from trial to trial."""
        line = {"width": 1, "color": GREY, "dash": dash}
        return {**self._points(rows), "name": name, "line": line, "marker": marker}

    def one(self, row: TrialRow, name: str, colour: str, symbol: str) -> Trace:
        """A thick line with its standard errors."""
        is_free = row.setting.beta == 0
        errors = [getattr(point, f"{self._field}_se") for point in self.points(row)]
        return {
            **self._points([row]),
            "name": name,
            "line": {"width": 3, "color": colour, "dash": "dash" if is_free else "solid"},
            "marker": {"color": colour, "symbol": symbol, "size": 9},
            "error_y": {"type": "data", "array": lean(errors), "thickness": 1, "width": 2},
        }

    def points(self, row: TrialRow) -> list[Checkpoint]:
        """At most ``most`` of its evaluations, first, last and the one it is judged by among them."""
        points = drawn(row, self._field)
        if len(points) <= self.most:
            return points
        kept = thinned(points, self.most)
        peak = row.peak
        if peak is None or peak in kept or peak not in points:
            return kept
        inner = min(range(1, len(kept) - 1), key=lambda i: abs(kept[i].step - peak.step))
        return [*kept[:inner], peak, *kept[inner + 1 :]]

    def _points(self, rows: Sequence[TrialRow]) -> Trace:
        shown = [(row, points) for row in rows if (points := self.points(row))]
        xs = [lean(math.sqrt(max(0.0, p.kl_seq)) for p in points) for _, points in shown]
        ys = [lean(getattr(p, self._field) for p in points) for _, points in shown]
        return {
            "type": "scatter",
            "mode": "lines+markers",
            "x": with_gaps(xs),
            "y": with_gaps(ys),
            "customdata": with_gaps([[row.number] * len(points) for row, points in shown]),
            "text": with_gaps([[self._words(row, p) for p in points] for row, points in shown]),
            "hovertemplate": self._hover,
        }

    def _words(self, row: TrialRow, point: Checkpoint) -> str | int:
        if self._over is None:
            return point.step
        kl = f"KL {number(point.kl_seq)} nats/sequence"
        return f"{point.step}: {kl}<br>{setting_words(row, self._over.kl_unit)}"


def drawn(row: TrialRow, field: str) -> list[Checkpoint]:
    """The evaluations whose score and KL are finite."""
    return [c for c in row.checkpoints if math.isfinite(getattr(c, field) + c.kl_seq)]


def _by_beta(
    rows: Sequence[TrialRow], shown: Sequence[TrialRow], build: _Traces, beta_unit: str
) -> dict[str, Any]:
    """Dots coloured by beta on a logarithmic scale, over all trials' betas; one colour where there is one beta."""
    betas = [row.setting.beta for row in rows if row.setting.beta > 0]
    if len(set(betas)) < 2:
        return {"color": LOW, "size": 6}
    bar = log_colour_bar(wrapped(f"beta at the start ({beta_unit})"), min(betas), max(betas))
    # As many colours as `_Traces` has points; a trial without a finite one has none there.
    counts = [(short(math.log10(row.setting.beta), 3), len(build.points(row))) for row in shown]
    return {**bar, "size": 6, "color": with_gaps([[c] * n for c, n in counts if n], bar["cmin"])}


def _name(row: TrialRow) -> str:
    return f"trial {row.number} (beta = 0)" if row.setting.beta == 0 else f"trial {row.number}"


def _curve(line: Line, place: int) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": line.name,
        "x": lean(x for x, _ in line.points),
        "y": lean(y for _, y in line.points),
        "line": {"width": 2, "color": INK, "dash": _DASHES[place % len(_DASHES)]},
        "hovertemplate": f"{line.name}<br>%{{y}} at √KL %{{x}}<extra></extra>",
    }
