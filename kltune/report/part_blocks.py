"""A study whose proxy is a weighted sum in, what each part gave over the steps out: a table and a figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Final

from kltune.metrics.part_names import part_metric
from kltune.report.canvas import INK, drawing
from kltune.report.charts.parts import Points, parts_chart
from kltune.report.colours import PROXY_COLOUR
from kltune.report.document import Block, Figure, Figures, Grid, Paragraph
from kltune.report.rows import StudyRows, TrialRow
from kltune.spec.scorers import WeightedPart, WeightedSpec
from kltune.trial.record import read_trial
from kltune.trial.words import MISSING, number

_SHARE: Final = 10
"""The first and last tenth of the steps are compared."""
_HEADER: Final = (
    "part", "weight", "first steps", "last steps", "change", "change × weight",
)  # fmt: skip


def part_blocks(study: StudyRows, chosen: Sequence[TrialRow | None]) -> tuple[Block, ...]:
    """Of the first of ``chosen`` that has steps; empty for a proxy without parts, and before any step."""
    parts = _parts(study)
    row = next((row for row in (*chosen, *study.trials) if row is not None and row.steps_run), None)
    if not parts or row is None:
        return ()
    curves = part_curves(row, [part.called for part in parts])
    if not curves:
        return ()
    count = max(1, max(len(points) for points in curves.values()) // _SHARE)
    steps = "the first and the last step" if count == 1 else f"the first and the last {count} steps"
    note = Paragraph(
        f"Means over the completions of {steps} of trial {row.number}, on train prompts, each part in its own unit before "
        "its weight. The last column is what the part added to the proxy: the part that grows most is what training "
        "went for.",
        "note",
    )
    grid = Grid(
        _HEADER,
        tuple(_cells(p, curves[p.called], count) for p in parts if p.called in curves),
        numeric=frozenset(range(1, len(_HEADER))),
    )
    caption = f"Trial {row.number}: mean of each part of task.proxy over the completions of a step, before its weight."
    figure = Figure(_drawn(row, curves), caption, chart=parts_chart(row, curves))
    return (note, grid, Figures((figure,)))


def part_curves(row: TrialRow, names: Sequence[str]) -> Mapping[str, Points]:
    """(step, mean) of each part that some step of the trial has; steps where it could score nothing are left out."""
    steps = read_trial(row.folder).steps
    found: dict[str, list[tuple[float, float]]] = {}
    for name in names:
        given = [(float(step["step"]), step.get(part_metric(name))) for step in steps]
        points = [(at, float(value)) for at, value in given if isinstance(value, int | float)]
        if points:
            found[name] = points
    return found


def _parts(study: StudyRows) -> tuple[WeightedPart, ...]:
    proxy = getattr(study.spec.task, "proxy", None)
    return proxy.weighted if isinstance(proxy, WeightedSpec) else ()


def _cells(part: WeightedPart, points: Points, count: int) -> tuple[str, ...]:
    first = fmean(value for _, value in points[:count])
    last = fmean(value for _, value in points[-count:])
    change = last - first
    shown = f"{change:+.3g}" if math.isfinite(change) else MISSING
    return (
        part.called,
        f"{part.weight:g}",
        number(first),
        number(last),
        shown,
        f"{part.weight * change:+.3g}",
    )


def _drawn(row: TrialRow, curves: Mapping[str, Points]) -> str:
    with drawing(4.6, 0.5 + 1.1 * len(curves)) as (canvas, out):
        panels = canvas.subplots(len(curves), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (name, points) in zip(panels, curves.items(), strict=True):
            axes.plot([x for x, _ in points], [y for _, y in points], color=PROXY_COLOUR, lw=1.3)
            axes.set_ylabel(name)
            axes.grid(alpha=0.18, lw=0.6)
            axes.spines["right"].set_visible(False)
            if row.peak is not None:
                axes.axvline(row.peak.step, color=INK, lw=0.8, ls=":")
        panels[-1].set_xlabel("step")
    return out[0]
