"""Trials in, one drawing of their settings as parallel coordinates coloured by value out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kltune.report.canvas import PAPER, drawing
from kltune.report.charts.parallel import Axis, Line, parallel_chart
from kltune.report.colours import BEST
from kltune.report.document import Chart, Figure
from kltune.report.figures import colour_map
from kltune.report.rows import TrialRow
from kltune.spec.trial import KLUnit
from kltune.trial.words import number

_LOGARITHMIC = ("beta", "target_kl", "horizon", "learning_rate")
_UNIT = {"horizon": "sequences"}
_NONE = "none"


def parallel_coordinates(
    rows: Sequence[TrialRow], best: TrialRow | None, unit: KLUnit
) -> Figure | None:
    """One line a trial over the settings that differ; none where fewer than two trials have a value."""
    judged = [row for row in rows if row.value is not None and math.isfinite(row.value)]
    names = [name for name in _settings(judged) if len({_settings_of(r)[name] for r in judged}) > 1]
    if len(judged) < 2 or not names:
        return None
    columns = [_Column(name, [_settings_of(row)[name] for row in judged]) for name in names]
    golds = [row.value for row in judged if row.value is not None]
    columns.append(_Column("value (gold)", list(golds)))
    with drawing(1.5 * len(columns) + 1.2, 3.6) as (canvas, out):
        axes = canvas.add_subplot()
        low, high = min(golds), max(golds)
        colours = colour_map()
        for index, row in sorted(enumerate(judged), key=lambda pair: pair[1] is best):
            share = (golds[index] - low) / (high - low) if high > low else 0.5
            heights = [column.heights[index] for column in columns]
            is_best = row is best
            axes.plot(
                range(len(columns)),
                heights,
                color=BEST if is_best else colours(share),
                lw=2.6 if is_best else 1.1,
                alpha=1.0 if is_best else 0.8,
                ls="-" if row.is_feasible else ":",
            )
        box = {"facecolor": PAPER, "edgecolor": "none", "alpha": 0.8, "pad": 1.2}
        for place, column in enumerate(columns):
            axes.axvline(place, color="0.5", lw=0.8)
            for height, label in column.ticks:
                axes.text(place + 0.03, height, label, va="center", fontsize=8, bbox=box, zorder=5)
        axes.set_xticks(range(len(columns)), [_title(c.name, unit) for c in columns])
        axes.set_yticks([])
        axes.set_xlim(-0.1, len(columns) - 0.6)
        axes.tick_params(length=0)
        for side in axes.spines.values():
            side.set_visible(False)
    text = (
        f"Settings of the {len(judged)} trials with a value; blue low, orange high value, "
        "dotted: outside the limits"
    )
    text += "." if best is None else f", green: the recommended trial {best.number}."
    return Figure(out[0], text, is_wide=True, chart=_chart(columns, judged, golds, best, unit))


def _chart(
    columns: Sequence[_Column],
    judged: Sequence[TrialRow],
    golds: Sequence[float],
    best: TrialRow | None,
    unit: KLUnit,
) -> Chart:
    axes = [Axis(_title(c.name, unit), c.heights, c.words, c.ticks) for c in columns]
    lines = [
        Line(row.number, gold, row.is_feasible is not False, row is best)
        for row, gold in zip(judged, golds, strict=True)
    ]
    return parallel_chart(axes, lines)


def _title(name: str, unit: KLUnit) -> str:
    if name == "target_kl":
        return f"target_kl\n(nats/{unit.value})"
    return f"{name}\n({_UNIT[name]})" if name in _UNIT else name


def _settings(rows: Sequence[TrialRow]) -> list[str]:
    return list(_settings_of(rows[0])) if rows else []


def _settings_of(row: TrialRow) -> Mapping[str, Any]:
    setting = row.setting
    return {
        "penalty": _NONE if setting.penalty is None or setting.beta == 0 else setting.penalty.value,
        "beta": setting.beta,
        "controller": setting.controller.value,
        "target_kl": setting.target_kl,
        "horizon": setting.horizon,
        "learning_rate": setting.learning_rate,
    }


def _words(value: Any) -> str:
    if isinstance(value, str):
        return value
    return _NONE if value is None else number(value)


class _Column:
    """One axis: the height of each trial between 0 and 1, and the labelled ticks.

    Where a trial has no such setting, or beta is 0 on a logarithmic axis, it sits below the axis.
    """

    def __init__(self, name: str, values: Sequence[Any]) -> None:
        self.name = name
        self.words = [_words(value) for value in values]
        if any(isinstance(value, str) for value in values):
            levels = sorted(set(values))
            places = {v: i / max(1, len(levels) - 1) for i, v in enumerate(levels)}
            self.heights = [places[v] for v in values]
            self.ticks = [(places[v], v) for v in levels]
            return
        is_log = name in _LOGARITHMIC
        inside = [v for v in values if v is not None and (v > 0 or not is_log)]
        scale = (math.log if is_log else float) if inside else float
        low, high = (scale(min(inside)), scale(max(inside))) if inside else (0.0, 1.0)
        self.heights = [
            -0.14 if v is None or (is_log and v <= 0) else (scale(v) - low) / ((high - low) or 1.0)
            for v in values
        ]
        self.ticks = [(0.0, number(min(inside))), (1.0, number(max(inside)))] if inside else []
        if any(h < 0 for h in self.heights):
            self.ticks.append((-0.14, "0" if name == "beta" else _NONE))
