"""The law's findings in, one drawing out: gold against the square root of KL, the law through it, and its peak."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from kltune.report.canvas import INK, Trace, draw_traces, drawing
from kltune.report.charts.law import law_chart
from kltune.report.colours import BEST, HIGH, LOW, WORST
from kltune.report.document import Figure
from kltune.report.law_findings import LawFindings, TrialLaw
from kltune.statistics.law import LawFit, LawVerdict
from kltune.trial.words import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def law_figure(found: LawFindings) -> Figure:
    """Every evaluation's gain over the start, the pooled law, its peak and the peak's interval."""
    fit = found.pooled
    with drawing(5.2, 3.7) as (canvas, out):
        axes = canvas.add_subplot()
        best = None if found.beta is None else found.beta.law
        others = [law for law in found.trials if law is not best]
        draw_traces(axes, [_trace(law, LOW) for law in others], width=0.3, dot=2.8, zorder=2)
        if best is not None:
            draw_traces(axes, [_trace(best, BEST)], width=2.0, dot=4.2, zorder=4)
            axes.plot([], [], "-o", color=BEST, lw=2, ms=3.2, label=_best_label(best))
        axes.plot([], [], "-o", color=LOW, lw=0.3, ms=2.4, label="other trials")
        d_max = _d_max(found)
        _law(axes, fit, d_max)
        _peak(axes, fit, d_max)
        axes.set_xlim(0, d_max)
        axes.set_ylim(*_span(found, d_max))
        axes.axhline(0, color=INK, lw=0.6, alpha=0.5)
        axes.set_xlabel("√(KL in nats/sequence)")
        axes.set_ylabel("gold over gold at the start (select prompts)")
        axes.spines["right"].set_visible(False)
        axes.grid(alpha=0.18, lw=0.6)
        canvas.legend(loc="outside upper left", ncols=2, fontsize=8)
    return Figure(
        out[0],
        _caption(found, d_max),
        chart=law_chart(found, d_max, _span(found, d_max)),
    )


def _law(axes: Axes, fit: LawFit, d_max: float) -> None:
    if fit.a is None:
        return
    d_P = np.linspace(1e-3, min(d_max, math.sqrt(fit.kl_range[1])), 200)
    is_rejected = fit.verdict is LawVerdict.REJECTED
    label = "law of all trials (rejected)" if is_rejected else "law of all trials"
    axes.plot(
        d_P,
        fit.gain(d_P),
        color=WORST,
        lw=2,
        ls="--" if is_rejected else "-",
        label=label,
        zorder=5,
    )


def _peak(axes: Axes, fit: LawFit, d_max: float) -> None:
    peak = fit.kl_peak
    if peak is None or fit.verdict is not LawVerdict.IDENTIFIED:
        return
    low, high = math.sqrt(peak.low), min(d_max, math.sqrt(peak.high))
    axes.axvspan(low, high, color=HIGH, alpha=0.22, lw=0, zorder=1)
    label = f"KL* = {number(peak.value)} ({number(peak.low)} to {number(peak.high)}) nats/sequence"
    axes.axvline(math.sqrt(peak.value), color=HIGH, lw=1.6, label=label, zorder=3)


def _trace(law: TrialLaw, colour: str) -> Trace:
    points = zip(law.points.d_P.tolist(), law.points.gain_PN.mean(axis=1).tolist(), strict=True)
    return Trace([(0.0, 0.0), *points], colour)


def _best_label(law: TrialLaw) -> str:
    return f"recommended: trial {law.row.number}"


def _d_max(found: LawFindings) -> float:
    """Where all but the last 2 in 100 evaluations lie: one that broke down must not flatten the rest."""
    d_A = np.concatenate([law.points.d_P for law in found.trials])
    return 1.05 * float(np.quantile(d_A, 0.98))


def _span(found: LawFindings, d_max: float) -> tuple[float, float]:
    inside = [law.points.gain_PN.mean(axis=1)[law.points.d_P <= d_max] for law in found.trials]
    gains = np.concatenate([np.zeros(1), *inside])
    low, high = float(gains.min()), float(gains.max())
    height = (high - low) or 1.0  # gold that never moves: an axis needs some height all the same
    return low - 0.06 * height, high + 0.08 * height


def _caption(found: LawFindings, d_max: float) -> str:
    beyond = sum(int((law.points.d_P > d_max).sum()) for law in found.trials)
    text = "Gold gained against √(sequence KL): one line a trial, one dot an evaluation."
    if found.pooled.verdict is LawVerdict.IDENTIFIED:
        text += " The band is where the law's peak lies with 95 % confidence."
    if beyond:
        text += f" {beyond} evaluation{'s' * (beyond != 1)} further to the right not drawn (but fitted)."
    return text
