"""A trial's tokens in, drawings out: a heat map over position and step, profiles, quantiles, and what goes with KL."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kltune.metrics.record import TokenProfile
from kltune.report.canvas import INK, drawing
from kltune.report.charts.tokens import curves_chart, heat_chart, profile_chart
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
from kltune.report.document import Chart, Figure
from kltune.report.figures import colour_map
from kltune.report.tokens import Moment, Points, TokenEvidence, pooled
from kltune.trial.words import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEWEST = 4
"""Tokens of a bucket below which its mean says little: left out of the profile's lines and of the map's scale."""
MOST_COLUMNS = 160
"""Of the heat map; longer trainings have several steps in a column."""
_MOMENT_COLOURS = {"start": INK, "peak of gold": BEST, "end": HIGH}
_QUANTILE_COLOURS = {"p50": LOW, "p95": MIDDLE, "p99": HIGH, "max": WORST, "mean": INK}


def heat_map(evidence: TokenEvidence, title: str) -> Figure:
    """Mean KL per token, by position in the completion (up) and step (right)."""
    steps, kl_PS, tokens_PS = _grid(evidence)
    sound = kl_PS[(tokens_PS >= FEWEST) & np.isfinite(kl_PS)]
    top = float(sound.max()) if sound.size else 0.0
    edges = evidence.profiles[steps[-1]].edges
    peak = evidence.row.peak
    peak_step = peak.step if peak is not None and _has_peak(evidence) else None
    with drawing(3.9, 5.2) as (canvas, out):
        from matplotlib.colors import PowerNorm

        axes = canvas.add_subplot()
        image = axes.imshow(
            kl_PS,
            aspect="auto",
            origin="lower",
            interpolation="none",
            extent=(steps[0] - 0.5, steps[-1] + 0.5, 0, edges[-1]),
            norm=PowerNorm(0.5, 0.0, top or 1.0, clip=True),
            cmap=colour_map(),
        )
        if peak_step is not None:
            axes.axvline(peak_step, color=INK, lw=0.9, ls=":")
        axes.set_xlabel("step")
        axes.set_ylabel("position in the completion (tokens)")
        axes.set_ylim(0, _last_used(tokens_PS, edges))
        axes.locator_params(integer=True)
        axes.spines["right"].set_visible(False)
        bar = canvas.colorbar(image, ax=axes, location="top", pad=0.02, aspect=26)
        bar.set_label("mean exact KL (nats/token)")
        bar.set_ticks(ticks := [share * (top or 1.0) for share in (0, 0.04, 0.16, 0.36, 0.64, 1)])
        bar.ax.set_xticklabels([number(kl, 2) for kl in ticks])
    note = "" if peak_step is None else " Dotted: the peak of gold."
    return Figure(
        out[0],
        f"{title}: where the KL lies. Colour by the square root of KL; blank: no completion is that long.{note}",
        chart=heat_chart(
            _column_edges(steps, kl_PS.shape[1]),
            edges,
            kl_PS,
            top or 1.0,
            (_last_used(tokens_PS, edges), peak_step),
        ),
    )


def profile_figure(moments: Sequence[Moment], title: str) -> Figure:
    """KL by position at the start, at the peak and at the end, and how many tokens stand there."""
    with drawing(3.9, 5.2) as (canvas, out):
        kl, tokens = canvas.subplots(2, 1, sharex=True, height_ratios=(2.4, 1))
        for moment in moments:
            colour = _MOMENT_COLOURS[moment.name]
            x_B, kl_B, tokens_B = _profile(moment.profile)
            kl.plot(x_B, kl_B, "-o", color=colour, lw=1.4, ms=2.6, label=moment.words)
            # Per step: moments of several steps are then beside the start's one.
            steps = moment.last_step - moment.first_step + 1
            tokens.plot(x_B, tokens_B / steps, "-o", color=colour, lw=1.3, ms=1.2)
        kl.set_ylabel("exact KL (nats/token)")
        kl.set_ylim(bottom=0)
        tokens.set_ylabel("tokens\nper step")
        tokens.set_ylim(bottom=0)
        tokens.set_xlabel("position in the completion (tokens)")
        tokens.set_xlim(-0.5, moments[-1].profile.edges[-1] - 0.5)
        tokens.locator_params(axis="x", integer=True)
        for axes in (kl, tokens):
            _plain(axes)
        canvas.legend(loc="outside upper left", ncols=1, fontsize=8)
    return Figure(
        out[0],
        f"{title}: KL by position, means over the steps named. Positions with fewer than {FEWEST} tokens are left out.",
        chart=_profile_chart(moments),
    )


def curves_figure(evidence: TokenEvidence, title: str) -> Figure | None:
    """Over the steps: quantiles of the tokens' KL, what goes with KL, and its share of the update.

    A panel whose numbers were not recorded is left out; none where no panel is left.
    """
    related = evidence.step_correlation or evidence.proxy_correlation or evidence.gold_correlation
    wanted: list[tuple[Callable[[Axes, TokenEvidence], None], float]] = []
    wanted += [(_quantile_panel, 1.5)] if evidence.quantiles["p50"] else []
    wanted += [(_relation_panel, 1.0)] if related else []
    wanted += [(_share_panel, 1.0)] if evidence.grad_share or evidence.loss_share else []
    if not wanted:
        return None
    heights = [height for _, height in wanted]
    with drawing(3.9, 0.5 + 1.35 * sum(heights)) as (canvas, out):
        panels = canvas.subplots(len(wanted), 1, sharex=True, squeeze=False, height_ratios=heights)
        for axes, (draw, _) in zip(panels[:, 0], wanted, strict=True):
            draw(axes, evidence)
            _plain(axes)
            _legend(axes)
        panels[-1, 0].set_xlabel("step")
    return Figure(
        out[0],
        f"{title}: KL of the tokens of each step (a mean carried by the last percent is local damage); whether "
        "completions far from the start score better or worse; how much of the update the KL makes out.",
        chart=_curves_chart(evidence),
    )


def _profile_chart(moments: Sequence[Moment]) -> Chart:
    found: list[tuple[str, str, Points, Points]] = []
    for moment in moments:
        x_B, kl_B, tokens_B = _profile(moment.profile)
        steps = moment.last_step - moment.first_step + 1
        kl = zip(x_B.tolist(), kl_B.tolist(), strict=True)
        tokens = zip(x_B.tolist(), (tokens_B / steps).tolist(), strict=True)
        found.append((moment.words, _MOMENT_COLOURS[moment.name], tuple(kl), tuple(tokens)))
    return profile_chart(found, moments[-1].profile.edges[-1] - 0.5)


def _curves_chart(evidence: TokenEvidence) -> Chart:
    """The panels of `curves_figure` whose numbers were recorded."""
    quantiles = {
        f"token KL {name}": (
            colour,
            "dash" if name == "mean" else "solid",
            evidence.quantiles[name],
        )
        for name, colour in _QUANTILE_COLOURS.items()
    }
    relations = {
        "KL and proxy (rollouts)": (PROXY_COLOUR, "dot", evidence.step_correlation),
        "KL and proxy (select)": (PROXY_COLOUR, "solid", evidence.proxy_correlation),
        "KL and gold (select)": (GOLD_COLOUR, "dash", evidence.gold_correlation),
    }
    shares = {
        "KL share of the loss": (BETA_COLOUR, "solid", evidence.loss_share),
        "KL share of the gradient": (KL_COLOUR, "dash", evidence.grad_share),
    }
    panels = (
        ("exact KL of a token (nats)", 1.5, quantiles),
        ("correlation with KL", 1.0, relations),
        ("share of the KL", 1.0, shares),
    )
    recorded = [
        (title, height, {name: line for name, line in lines.items() if line[2]})
        for title, height, lines in panels
    ]
    return curves_chart([panel for panel in recorded if panel[2]])


def _column_edges(steps: Sequence[int], columns: int) -> list[float]:
    """Left edges of the map's columns and the right one of the last."""
    size = math.ceil(len(steps) / MOST_COLUMNS)
    return [*(steps[0] - 0.5 + size * i for i in range(columns)), steps[-1] + 0.5]


def _legend(axes: Axes) -> None:
    """One row above the panel; none where nothing is drawn."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(
            loc="lower left",
            bbox_to_anchor=(-0.02, 0.98),
            ncols=5,
            fontsize=7.5,
            columnspacing=0.9,
            handlelength=1.3,
        )


def _quantile_panel(axes: Axes, evidence: TokenEvidence) -> None:
    for name, colour in _QUANTILE_COLOURS.items():
        points = [(s, v) for s, v in evidence.quantiles[name] if v > 0]
        if points:
            style = "--" if name == "mean" else "-"
            axes.plot(*_columns(points), color=colour, lw=1.3, ls=style, label=name)
    if axes.lines:
        axes.set_yscale("log")
    axes.set_ylabel("exact KL of\na token (nats)")


def _relation_panel(axes: Axes, evidence: TokenEvidence) -> None:
    axes.axhline(0, color=INK, lw=0.6, alpha=0.6)
    _line(axes, evidence.step_correlation, PROXY_COLOUR, "proxy (rollouts)", is_eval=False)
    _line(axes, evidence.proxy_correlation, PROXY_COLOUR, "proxy (select)", is_eval=True)
    _line(axes, evidence.gold_correlation, GOLD_COLOUR, "gold (select)", is_eval=True)
    axes.set_ylim(-1.05, 1.05)
    axes.set_ylabel("correlation\nwith KL")


def _share_panel(axes: Axes, evidence: TokenEvidence) -> None:
    _line(axes, evidence.loss_share, BETA_COLOUR, "of the loss", is_eval=False)
    _line(axes, evidence.grad_share, KL_COLOUR, "of the gradient", is_eval=True)
    axes.set_ylim(-0.03, 1.03)
    axes.set_ylabel("share of\nthe KL")


def _has_peak(evidence: TokenEvidence) -> bool:
    """Whether gold peaks after some training."""
    return evidence.row.peak is not None and evidence.row.peak.step > 0


def _line(axes: Axes, points: Points, colour: str, label: str, *, is_eval: bool) -> None:
    """A line with dots for what is measured now and then, a thin one for what every step has."""
    if points and is_eval:
        axes.plot(*_columns(points), "-o", color=colour, label=label, lw=1.5, ms=2.6)
    elif points:
        axes.plot(*_columns(points), color=colour, label=label, lw=0.8, alpha=0.65)


def _columns(points: Sequence[tuple[int, float]]) -> tuple[list[int], list[float]]:
    """Steps and values; a lone point would be no line, so it is drawn twice."""
    listed = [points[0], points[0]] if len(points) == 1 else list(points)
    return [step for step, _ in listed], [value for _, value in listed]


def _plain(axes: Axes) -> None:
    axes.spines["right"].set_visible(False)
    axes.grid(alpha=0.18, lw=0.6)


def _profile(profile: TokenProfile) -> tuple[NDArray, NDArray, NDArray]:
    """Middles of the buckets, KL (NaN where too few tokens stand), and tokens per position."""
    x_B = np.array([(a + b - 1) / 2 for a, b in itertools.pairwise(profile.edges)])
    widths_B = np.diff(profile.edges)
    tokens_B = np.array(profile.tokens, dtype=float)
    kl_B = np.where(tokens_B >= FEWEST, np.array(profile.kl, dtype=float), math.nan)
    return x_B, kl_B, tokens_B / widths_B


def _grid(evidence: TokenEvidence) -> tuple[list[int], NDArray, NDArray]:
    """Steps of the columns; KL (NaN where no token stands) and tokens, buckets by columns."""
    recorded = sorted(evidence.profiles)
    steps = list(range(recorded[0], recorded[-1] + 1))
    size = math.ceil(len(steps) / MOST_COLUMNS)
    columns = [steps[first : first + size] for first in range(0, len(steps), size)]
    num_buckets = len(evidence.profiles[recorded[-1]].kl)
    kl_PS = np.full((num_buckets, len(columns)), math.nan)
    tokens_PS = np.zeros((num_buckets, len(columns)))
    for place, column in enumerate(columns):
        held = [evidence.profiles[step] for step in column if step in evidence.profiles]
        if held and len(held[-1].kl) == num_buckets:
            profile = pooled(held)
            tokens_PS[:, place] = profile.tokens
            kl_PS[:, place] = np.where(tokens_PS[:, place] > 0, profile.kl, math.nan)
    return steps, kl_PS, tokens_PS


def _last_used(tokens_PS: NDArray, edges: Sequence[int]) -> int:
    """The edge above the last position that any completion reached."""
    used = np.flatnonzero(tokens_PS.sum(axis=1))
    return edges[int(used[-1]) + 1] if used.size else edges[-1]
