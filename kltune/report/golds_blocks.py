"""Rows and the answer in, the report's section on several golds out: limits, trade-off, what was passed over."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kltune.report.canvas import INK, drawing
from kltune.report.charts.golds import golds_chart
from kltune.report.compare import is_within
from kltune.report.document import Block, Figure, Figures, Grid, Paragraph
from kltune.report.figures import BEST, HIGH, LOW
from kltune.report.golds import (
    OBJECTIVE,
    Front,
    GoldAtStop,
    Interval,
    Spot,
    front_of,
    gold_names,
    golds_at_stop,
    limit_verdict,
    passed_over,
)
from kltune.report.recommend import Answer, Recommendation
from kltune.report.rows import StudyRows
from kltune.trial.words import MISSING, both_units, score, setting_short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = 8
"""Rows of a trade-off's table."""

_STOP_HEADER = (
    "gold",
    "at step 0 ± s.e.",
    "at the stop ± s.e.",
    "change",
    "95 % interval",
    "lowest allowed",
    "limit",
)
_FRONT_HEADER = ("trial", "step", "gold ± s.e.", "{} ± s.e.", "KL", "limits", "setting")


def golds_blocks(study: StudyRows, answer: Answer) -> tuple[Block, ...]:
    """Every gold at the recommended stop, and each one's trade-off; empty for a study with one gold."""
    names = gold_names(study)
    if not names:
        return ()
    found = answer if isinstance(answer, Recommendation) else None
    blocks: list[Block] = [] if found is None else _stop_blocks(study, found)
    fronts = [front_of(study, name) for name in names]
    figures = [_figure(front, found) for front in fronts if front.spots or front.outside]
    if figures:
        blocks.append(Figures(tuple(figures)))
        blocks.append(Paragraph(_luck(study), "note"))
    for front in fronts:
        if front.best:
            blocks += _front_table(study, front)
    return tuple(blocks)


def _stop_blocks(study: StudyRows, found: Recommendation) -> list[Block]:
    golds = golds_at_stop(study, found)
    if not golds or found.best.peak is None:
        return []
    num_prompts = len(found.best.peak.gold_by_prompt)
    note = (
        f"Every gold at the recommended checkpoint (trial {found.best.number}, step {found.best.peak.step}) against "
        f"step 0, in its own unit, on the same {num_prompts} select prompts; the objective is "
        f"{OBJECTIVE}. A limit is broken where the mean is beyond it; noise is not allowed for, but said."
    )
    blocks: list[Block] = [
        Paragraph(note, "note"),
        Grid(
            _STOP_HEADER,
            tuple(_stop_cells(gold) for gold in golds),
            numeric=frozenset((1, 2, 3, 4, 5)),
        ),
    ]
    over = passed_over(study, found)
    if over is not None:
        blocks.append(Paragraph(_passed_over_words(study, found, over)))
    return blocks


def _stop_cells(gold: GoldAtStop) -> tuple[str, ...]:
    return (
        gold.name,
        score(gold.start, gold.start_se),
        score(gold.mean, gold.se),
        MISSING if gold.change is None else f"{gold.change.mean:+.3f}",
        _range(gold.change),
        score(gold.floor),
        limit_verdict(gold),
    )


def _range(interval: Interval | None) -> str:
    if interval is None or not math.isfinite(interval.low):
        return MISSING
    return f"{interval.low:+.3f} to {interval.high:+.3f}"


def _passed_over_words(study: StudyRows, found: Recommendation, over: Spot) -> str:
    peak = found.best.peak
    assert peak is not None, "there is no passing over without a recommended peak"
    limits = ", ".join(
        f"{name} {score(over.checkpoint.others[name].mean, over.checkpoint.others[name].se)}"
        for name in study.spec.objective.gold_limits
        if name in over.checkpoint.others
    )
    return (
        f"Passed over for a limit: trial {over.row.number} at step {over.checkpoint.step} has the highest gold, "
        f"{score(over.checkpoint.gold, over.checkpoint.gold_se)} against {score(peak.gold, peak.gold_se)} "
        f"here, with {limits}. What the limit costs is at most that difference: the highest of many is partly luck."
    )


def _luck(study: StudyRows) -> str:
    limit = study.spec.objective.kl_limit
    within = "" if limit is None else " within the KL limit"
    return (
        f"One dot a checkpoint after step 0, over all trials. The line joins those{within} that no other one beats in "
        "both golds (the Pareto set): along it, more of one gold costs some of the other. Each dot is a mean over "
        "prompts, and the best of many means are partly luck: a dot near the line may be as good as one on it."
    )


def _front_table(study: StudyRows, front: Front) -> list[Block]:
    shown = _spread(front.best, SHOWN)
    cells = tuple(_front_cells(study, spot) for spot in shown)
    header = tuple(cell.format(front.name) for cell in _FRONT_HEADER)
    left = len(front.best) - len(shown)
    rest = f" {left} more lie between these rows." if left else ""
    title = (
        f"Gold against {front.name}: {len(front.best)} of {len(front.spots)} checkpoints are beaten by none in both."
        f"{rest}"
    )
    return [
        Paragraph(title, "note"),
        Grid(header, cells, numeric=frozenset((0, 1, 2, 3, 4))),
    ]


def _front_cells(study: StudyRows, spot: Spot) -> tuple[str, ...]:
    point, other = spot.checkpoint, spot.checkpoint.others[spot.name]
    spec = study.spec
    is_allowed = is_within(spot.row, point, spec.objective, spec.kl_unit)
    return (
        str(spot.row.number),
        str(point.step),
        score(point.gold, point.gold_se),
        score(other.mean, other.se),
        both_units(point.kl_token, point.kl_seq),
        "respected" if is_allowed else "broken",
        setting_short(spot.row.setting, spec.kl_unit),
    )


def _spread(spots: Sequence[Spot], count: int) -> list[Spot]:
    """Both ends and evenly spaced ones between."""
    if len(spots) <= count:
        return list(spots)
    return [spots[round(i * (len(spots) - 1) / (count - 1))] for i in range(count)]


def _figure(front: Front, found: Recommendation | None) -> Figure:
    text = f"Gold (the objective) against {front.name}, every checkpoint of every trial."
    chart = golds_chart(front, None if found is None else found.best)
    return Figure(_drawn(front, found), text, chart=chart)


def _drawn(front: Front, found: Recommendation | None) -> str:
    with drawing(5.0, 3.7) as (canvas, out):
        axes = canvas.add_subplot()
        if front.outside:
            _dots(axes, front.outside, INK, 0.25, "beyond the KL limit")
        _dots(axes, front.spots, LOW, 0.55, "checkpoint")
        places = [spot.place for spot in front.best]
        if places:
            xs, ys = zip(*places, strict=True)
            axes.plot(xs, ys, "-o", color=HIGH, lw=1.6, ms=4.5, zorder=4, label="beaten by none")
        if front.floor is not None:
            axes.axhline(front.floor, color=INK, lw=0.9, ls="--", zorder=3, label="lowest allowed")
        if front.start is not None:
            place = (front.start.gold, front.start.others[front.name].mean)
            axes.plot(*place, "D", color=INK, ms=6, mfc="none", ls="none", zorder=5, label="step 0")
        peak = None if found is None else found.best.peak
        if peak is not None and front.name in peak.others:
            other = peak.others[front.name]
            axes.errorbar(
                [peak.gold],
                [other.mean],
                xerr=[peak.gold_se],
                yerr=[other.se],
                fmt="o",
                color=BEST,
                ms=6.5,
                elinewidth=1.1,
                zorder=6,
                label="recommended ± s.e.",
            )
        axes.set_xlabel("gold (objective, select prompts)")
        axes.set_ylabel(f"{front.name} (select prompts)")
        axes.spines["right"].set_visible(False)
        axes.grid(alpha=0.18, lw=0.6)
        canvas.legend(loc="outside upper left", ncols=3, fontsize=8)
    return out[0]


def _dots(axes: Axes, spots: Sequence[Spot], colour: Any, alpha: float, label: str) -> None:
    """Round dots as one path: as markers by themselves they take ten times the bytes."""
    from matplotlib.collections import PathCollection
    from matplotlib.path import Path

    if not spots:
        return
    places = [place for spot in spots for place in (spot.place, spot.place)]
    path = Path(places, [Path.MOVETO, Path.LINETO] * len(spots))
    look = {"facecolors": "none", "edgecolors": [colour], "lw": 3.4, "capstyle": "round"}
    axes.add_collection(PathCollection([path], alpha=alpha, zorder=2, **look))  # type: ignore[arg-type]
    axes.plot([], [], "o", color=colour, alpha=alpha, ms=3.4, ls="none", label=label)
    axes.update_datalim(places)
    axes.autoscale_view()
