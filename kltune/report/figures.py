"""Rows in, inline SVG text out. Colours follow the page (light or dark) through ``currentColor``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kltune.report.canvas import INK, Trace, draw_traces, drawing
from kltune.report.charts.frontier import Named, frontier_chart
from kltune.report.charts.importance import importance_chart
from kltune.report.charts.steps import steps_chart
from kltune.report.colours import (
    BEST,
    BETA_COLOUR,
    GOLD_COLOUR,
    HIGH,
    KL_COLOUR,
    LOW,
    MIDDLE,
    PROXY_COLOUR,
    WORST,
)
from kltune.report.document import Figure
from kltune.report.overlays import Overlay
from kltune.report.rows import Checkpoint, TrialRow
from kltune.spec.trial import KLUnit
from kltune.trial.words import KL_UNIT, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

ZERO = INK


def against_kl(
    rows: Sequence[TrialRow],
    best: TrialRow | None,
    worst: TrialRow | None,
    beta_unit: str,
    over: Overlay | None = None,
) -> tuple[Figure, Figure]:
    """Gold and proxy of every trial against the square root of the sequence KL, with the curves of ``over``."""
    captions = {
        "gold": "Gold against √(sequence KL), every trial.",
        "proxy": "Proxy against √(sequence KL). Where it rises while gold falls, the proxy is over-optimised.",
    }
    named = Named(best, worst)
    gold, proxy = (
        Figure(
            _against_kl(rows, named, field, beta_unit, over),
            caption,
            chart=frontier_chart(rows, named, field, beta_unit, over),
        )
        for field, caption in captions.items()
    )
    return gold, proxy


def over_steps(
    chosen: Sequence[tuple[str, TrialRow]], unit: KLUnit, beta_unit: str
) -> tuple[Figure, ...]:
    """Gold, proxy, KL and beta over the steps of a few trials, on common scales."""
    rows = [row for _, row in chosen]
    golds = _span(g for row in rows for c in row.checkpoints for g in _band(c.gold, c.gold_se))
    proxies = _span(p for row in rows for c in row.checkpoints for p in _band(c.proxy, c.proxy_se))
    kls = _span([0.0, *(k for row in rows for k in (*_kl(row, unit), *row.curve.target))])
    return tuple(
        Figure(
            _over_steps(
                f"trial {row.number}: {title}", row, (unit, beta_unit), (golds, proxies, kls)
            ),
            f"{title.capitalize()}: trial {row.number}. Gold and proxy on select prompts ± 1 s.e.; KL with its target, dotted, where "
            "there is one (left axis), and beta (right axis) of the training steps.",
            chart=steps_chart(row, unit, beta_unit, (golds, proxies, kls)),
        )
        for title, row in chosen
    )


def importance_bars(values: dict[str, float], caption: str) -> Figure:
    """How much of the variance of the value each parameter explains."""
    names = sorted(values, key=lambda name: values[name])
    with drawing(4.6, 0.5 + 0.32 * len(names)) as (canvas, out):
        axes = canvas.add_subplot()
        axes.barh(names, [values[n] for n in names], color=LOW, height=0.6)
        for i, name in enumerate(names):
            axes.annotate(
                f"{100 * values[name]:.0f} %",
                (values[name], i),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
            )
        axes.set_xlim(0, max(values.values()) * 1.15 or 1)
        axes.set_xlabel("share of the variance of the value")
        axes.spines["right"].set_visible(False)
    return Figure(out[0], caption, chart=importance_chart(values))


def _against_kl(
    rows: Sequence[TrialRow], named: Named, field: str, beta_unit: str, over: Overlay | None
) -> str:
    best, worst = named.best, named.worst
    with drawing(5.0, 3.7) as (canvas, out):
        axes = canvas.add_subplot()
        colours, mappable = _beta_colours(rows)
        traces = {row.number: _trace(row, field, colours[row.number]) for row in rows}
        marks = {row.number: colour for row, colour in ((worst, WORST), (best, BEST)) if row}
        draw_traces(
            axes, (t for n, t in traces.items() if n not in marks), width=0.9, dot=2.8, zorder=2
        )
        for row in rows:
            if row.number in marks:
                colour = marks[row.number]
                trace = replace(traces[row.number], colour=colour)
                draw_traces(axes, [trace], width=2.2, dot=4.2, zorder=3)
                errors = [getattr(c, f"{field}_se") for c in _drawn(row, field)]
                xs, ys = [x for x, _ in trace.points], [y for _, y in trace.points]
                axes.errorbar(
                    xs, ys, yerr=errors, fmt="none", ecolor=colour, elinewidth=0.8, zorder=3
                )
        for line, style in zip(() if over is None else over.of(field), (":", "-."), strict=False):
            axes.plot(*zip(*line.points, strict=True), style, color=INK, lw=1.4, label=line.name)
        _legend(canvas, axes, rows, best, worst)
        axes.set_xlabel("√(KL in nats/sequence)")
        axes.set_ylabel(f"{field} (select prompts)")
        axes.spines["right"].set_visible(False)
        axes.grid(alpha=0.18, lw=0.6)
        if mappable is not None:
            label = f"beta at the start\n({beta_unit})"
            bar = canvas.colorbar(mappable, ax=axes, label=label, pad=0.02, aspect=30)
            bar.set_ticks(ticks := _ticks(mappable.norm.vmin, mappable.norm.vmax))
            bar.ax.set_yticklabels([number(beta) for beta in ticks])
            bar.ax.yaxis.set_minor_formatter(lambda _beta, _: "")
    return out[0]


def _drawn(row: TrialRow, field: str) -> list[Checkpoint]:
    return [c for c in row.checkpoints if math.isfinite(getattr(c, field) + c.kl_seq)]


def _trace(row: TrialRow, field: str, colour: Any) -> Trace:
    points = [(math.sqrt(max(0.0, c.kl_seq)), getattr(c, field)) for c in _drawn(row, field)]
    return Trace(points, colour, is_dashed=row.setting.beta == 0)


def _legend(
    canvas: Canvas,
    axes: Axes,
    rows: Sequence[TrialRow],
    best: TrialRow | None,
    worst: TrialRow | None,
) -> None:
    """Name the lines that stand out."""
    if best is not None:
        axes.plot([], [], "-o", color=BEST, lw=2.2, ms=3.2, label=f"recommended: {_name(best)}")
    if worst is not None and worst is not best:
        line = "--" if worst.setting.beta == 0 else "-"
        label = f"most over-optimised: {_name(worst)}"
        axes.plot([], [], line, marker="o", color=WORST, lw=2.2, ms=3.2, label=label)
    if any(row.setting.beta == 0 and row is not best and row is not worst for row in rows):
        axes.plot([], [], "--", color=ZERO, lw=0.9, label="beta = 0")
    if axes.get_legend_handles_labels()[0]:
        canvas.legend(loc="outside upper left", ncols=2, fontsize=8)


def _ticks(low: float, high: float) -> list[float]:
    """Both ends and the powers of ten between that keep clear of them."""
    decades = (10.0**n for n in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1))
    air = (high / low) ** 0.08
    return [low, *(d for d in decades if low * air < d < high / air), high]


def _name(row: TrialRow) -> str:
    return f"trial {row.number} (beta = 0)" if row.setting.beta == 0 else f"trial {row.number}"


def colour_map() -> Any:
    """Blue over grey to orange: all readable on white and on black, none near the marks' green and red."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("kltune", [LOW, MIDDLE, HIGH])


def _beta_colours(rows: Sequence[TrialRow]) -> tuple[dict[int, Any], Any]:
    """A colour by beta for each trial number, and the scale for a colour bar (none if one beta only)."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LogNorm

    betas = [row.setting.beta for row in rows if row.setting.beta > 0]
    if len(set(betas)) < 2:
        return {row.number: LOW if row.setting.beta > 0 else ZERO for row in rows}, None
    scale = ScalarMappable(LogNorm(min(betas), max(betas)), colour_map())
    shades = scale.to_rgba(np.array([row.setting.beta or math.nan for row in rows]))
    return {
        row.number: shade if row.setting.beta > 0 else ZERO
        for row, shade in zip(rows, shades, strict=True)
    }, scale


def _over_steps(
    title: str,
    row: TrialRow,
    units: tuple[KLUnit, str],
    spans: Sequence[tuple[float, float]],
) -> str:
    unit, beta_unit = units
    with drawing(3.9, 5.2) as (canvas, out):
        gold, proxy, kl = canvas.subplots(3, 1, sharex=True)
        _score_panel(gold, row, "gold", GOLD_COLOUR)
        _score_panel(proxy, row, "proxy", PROXY_COLOUR)
        steps = row.curve.step
        kl.plot(steps, _kl(row, unit), color=KL_COLOUR, lw=1.3)
        kl.plot(steps, row.curve.target, color=KL_COLOUR, lw=1.0, ls=":")
        kl.set_ylabel(f"KL ({KL_UNIT[unit]})", color=KL_COLOUR)
        beta = kl.twinx()
        beta.plot(steps, row.curve.beta, color=BETA_COLOUR, lw=1.3, ls="--")
        label = f"beta ({beta_unit})".replace("per nat", "per\nnat")
        beta.set_ylabel(label, color=BETA_COLOUR, fontsize=8)
        beta.set_ylim(
            bottom=0,
            top=1.15 * max((b for b in row.curve.beta if math.isfinite(b)), default=0) or 1,
        )
        kl.set_xlabel("step")
        for axes, span in zip((gold, proxy, kl), spans, strict=True):
            axes.set_ylim(*span)
            axes.grid(alpha=0.18, lw=0.6)
            if row.peak is not None:
                axes.axvline(row.peak.step, color=INK, lw=0.8, ls=":")
        for axes in (gold, proxy):
            axes.spines["right"].set_visible(False)
        dotted = "" if row.peak is None else f"\ndotted: peak at step {row.peak.step}"
        gold.set_title(f"{title}{dotted}", fontsize=9, loc="left")
    return out[0]


def _score_panel(axes: Axes, row: TrialRow, field: str, colour: str) -> None:
    points = [c for c in row.checkpoints if math.isfinite(getattr(c, field))]
    steps = [c.step for c in points]
    bands = [_band(getattr(c, field), getattr(c, f"{field}_se")) for c in points]
    axes.plot(steps, [getattr(c, field) for c in points], "-o", color=colour, lw=1.5, ms=3)
    if points:
        axes.fill_between(
            steps, [b[0] for b in bands], [b[1] for b in bands], color=colour, alpha=0.2, lw=0
        )
    axes.set_ylabel(field)


def _kl(row: TrialRow, unit: KLUnit) -> tuple[float, ...]:
    return row.curve.kl_token if unit is KLUnit.TOKEN else row.curve.kl_seq


def _band(value: float, se: float) -> tuple[float, float]:
    se = se if math.isfinite(se) else 0.0
    return value - se, value + se


def _span(values: Iterable[float]) -> tuple[float, float]:
    """Limits that hold all finite values with a little air."""
    finite = [v for v in values if math.isfinite(v)]
    if not finite:
        return 0.0, 1.0
    low, high = min(finite), max(finite)
    air = 0.06 * (high - low) or 0.1
    return low - air, high + air
