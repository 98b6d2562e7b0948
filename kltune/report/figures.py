"""Rows in, inline SVG text out. Colours follow the page (light or dark) through ``currentColor``."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kltune.report.document import Figure
from kltune.report.rows import TrialRow
from kltune.spec.trial import KLUnit
from kltune.trial.words import KL_UNIT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

_INK = "#010203"  # stands for the page's own text colour until the SVG is written
LOW, MIDDLE, HIGH = "#3b82f6", "#14a38b", "#f59e0b"
BEST, WORST, ZERO = "#16a34a", "#dc2626", "#8b5cf6"
KL_COLOUR, BETA_COLOUR = "#3b82f6", "#f59e0b"
_STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.spines.top": False,
    "axes.linewidth": 0.6,
    "legend.frameon": False,
}


def against_kl(
    rows: Sequence[TrialRow], best: TrialRow | None, worst: TrialRow | None, beta_unit: str
) -> tuple[Figure, Figure]:
    """Gold and proxy of every trial against the square root of the sequence KL."""
    return (
        Figure(_against_kl(rows, best, worst, "gold", beta_unit), "Gold against √(sequence KL), every trial."),
        Figure(
            _against_kl(rows, best, worst, "proxy", beta_unit),
            "Proxy against √(sequence KL). Where it rises while gold falls, the proxy is over-optimised.",
        ),
    )


def over_steps(chosen: Sequence[tuple[str, TrialRow]], unit: KLUnit) -> tuple[Figure, ...]:
    """Gold, proxy, KL and beta over the steps of a few trials, on common scales."""
    rows = [row for _, row in chosen]
    golds = _span(g for row in rows for c in row.checkpoints for g in _band(c.gold, c.gold_se))
    proxies = _span(p for row in rows for c in row.checkpoints for p in _band(c.proxy, c.proxy_se))
    kls = _span([0.0, *(k for row in rows for k in _kl(row, unit))])
    return tuple(
        Figure(
            _over_steps(row, unit, (golds, proxies, kls)),
            f"{title}: trial {row.number}. Gold and proxy on select prompts ± 1 s.e.; KL (left axis) and "
            "beta (right axis) of the training steps.",
        )
        for title, row in chosen
    )


def importance_bars(values: dict[str, float], caption: str) -> Figure:
    """How much of the variation of the value each parameter explains."""
    names = sorted(values, key=lambda name: values[name])
    with drawing(4.6, 0.5 + 0.32 * len(names)) as (canvas, out):
        axes = canvas.add_subplot()
        axes.barh(names, [values[n] for n in names], color=MIDDLE, height=0.6)
        for i, name in enumerate(names):
            axes.text(values[name], i, f" {100 * values[name]:.0f} %", va="center")
        axes.set_xlim(0, max(values.values()) * 1.15 or 1)
        axes.set_xlabel("share of importance")
        axes.spines["right"].set_visible(False)
    return Figure(out[0], caption)


@contextmanager
def drawing(width: float, height: float) -> Iterator[tuple[Canvas, list[str]]]:
    """An empty canvas in inches; its SVG is in the list after the block."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure as Canvas

    out: list[str] = []
    with mpl.rc_context(_STYLE):  # type: ignore[arg-type]
        canvas = Canvas(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(canvas)
        yield canvas, out
        stream = io.StringIO()
        canvas.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    out.append(_inline(stream.getvalue()))


def _inline(svg: str) -> str:
    """Strip what only a file needs and take the page's colour and font."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = svg.replace(_INK, "currentColor")
    svg = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font: \1 system-ui, sans-serif", svg)
    return re.sub(r"\s*\n\s*", " ", svg).strip()


def unique_ids(svg: str, prefix: str) -> str:
    """Make every id of an SVG its own, so that several fit on one page."""
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r"url\(#", f"url(#{prefix}-", svg)
    return re.sub(r'href="#', f'href="#{prefix}-', svg)


def _against_kl(
    rows: Sequence[TrialRow], best: TrialRow | None, worst: TrialRow | None, field: str, beta_unit: str
) -> str:
    with drawing(5.0, 3.7) as (canvas, out):
        axes = canvas.add_subplot()
        colours, mappable = _beta_colours(rows)
        for row in rows:
            marked = {id(best): BEST, id(worst): WORST}.get(id(row))
            colour = marked or colours[row.number]
            points = [c for c in row.checkpoints if math.isfinite(getattr(c, field) + c.kl_seq)]
            xs = [math.sqrt(max(0.0, c.kl_seq)) for c in points]
            ys = [getattr(c, field) for c in points]
            width = 2.2 if marked else 0.9
            order = 3 if marked else 2
            axes.plot(xs, ys, "-o", color=colour, lw=width, ms=3.2 if marked else 1.8, zorder=order)
            if marked:
                errors = [getattr(c, f"{field}_se") for c in points]
                axes.errorbar(xs, ys, yerr=errors, fmt="none", ecolor=colour, elinewidth=0.8, zorder=order)
        _legend(axes, rows, best, worst)
        axes.set_xlabel("√(KL in nats/sequence)")
        axes.set_ylabel(f"{field} (select prompts)")
        axes.spines["right"].set_visible(False)
        axes.grid(alpha=0.18, lw=0.6)
        if mappable is not None:
            canvas.colorbar(mappable, ax=axes, label=f"beta at the start\n({beta_unit})", pad=0.02, aspect=30)
    return out[0]


def _legend(axes: Axes, rows: Sequence[TrialRow], best: TrialRow | None, worst: TrialRow | None) -> None:
    """Name the lines that stand out."""
    if best is not None:
        axes.plot([], [], "-o", color=BEST, lw=2.2, ms=3.2, label=f"recommended: trial {best.number}")
    if worst is not None and worst is not best:
        axes.plot([], [], "-o", color=WORST, lw=2.2, ms=3.2, label=f"most over-optimised: trial {worst.number}")
    if any(row.setting.beta == 0 and row is not best and row is not worst for row in rows):
        axes.plot([], [], "-", color=ZERO, lw=0.9, label="beta = 0")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.16), ncols=2, fontsize=8)


def colour_map() -> Any:
    """Blue over green to orange: all readable on white and on black."""
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
    return {
        row.number: scale.to_rgba([row.setting.beta])[0] if row.setting.beta > 0 else ZERO for row in rows
    }, scale


def _over_steps(row: TrialRow, unit: KLUnit, spans: Sequence[tuple[float, float]]) -> str:
    with drawing(3.9, 5.2) as (canvas, out):
        gold, proxy, kl = canvas.subplots(3, 1, sharex=True)
        _score_panel(gold, row, "gold", MIDDLE)
        _score_panel(proxy, row, "proxy", ZERO)
        steps = row.curve.step
        kl.plot(steps, _kl(row, unit), color=KL_COLOUR, lw=1.3)
        kl.set_ylabel(f"KL ({KL_UNIT[unit]})", color=KL_COLOUR)
        beta = kl.twinx()
        beta.plot(steps, row.curve.beta, color=BETA_COLOUR, lw=1.3, ls="--")
        beta.set_ylabel("beta", color=BETA_COLOUR)
        beta.set_ylim(bottom=0, top=1.15 * max((b for b in row.curve.beta if math.isfinite(b)), default=0) or 1)
        kl.set_xlabel("step")
        for axes, span in zip((gold, proxy, kl), spans, strict=True):
            axes.set_ylim(*span)
            axes.grid(alpha=0.18, lw=0.6)
            if row.peak is not None:
                axes.axvline(row.peak.step, color=_INK, lw=0.8, ls=":")
        for axes in (gold, proxy):
            axes.spines["right"].set_visible(False)
        if row.peak is not None:
            gold.set_title(f"dotted: peak at step {row.peak.step}", fontsize=8)
    return out[0]


def _score_panel(axes: Axes, row: TrialRow, field: str, colour: str) -> None:
    points = [c for c in row.checkpoints if math.isfinite(getattr(c, field))]
    steps = [c.step for c in points]
    bands = [_band(getattr(c, field), getattr(c, f"{field}_se")) for c in points]
    axes.plot(steps, [getattr(c, field) for c in points], "-o", color=colour, lw=1.5, ms=3)
    if points:
        axes.fill_between(steps, [b[0] for b in bands], [b[1] for b in bands], color=colour, alpha=0.2, lw=0)
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

