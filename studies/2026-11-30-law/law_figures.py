"""The figures: gold by KL, heights by quality of the proxy, beta and best-of-n at equal KL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from experiment_figures import save_figure
from law_analysis import LAW_TO
from law_arms import (
    AXES,
    NO_KL,
    PENALTY_ARMS,
    PRICED,
    SHIPPED,
    Proxy,
    block_name,
    level_of,
)
from law_runs import Floats, Runs, bon_runs, middle_kl, runs_of

from kltune.statistics.arms import mean_of
from kltune.statistics.law import LawForm, law_basis

ORDERED = ("#440154", "#31688e", "#35b779", "#c2a000")
"""From few to many; told apart by lightness too."""
BON = "#555555"
_TITLES = {
    "comparisons": "comparisons",
    "noise": "share of labels flipped",
    "layers": "layers of the reward model",
}


def draw(
    runs: pd.DataFrame,
    bon: pd.DataFrame,
    shipped: pd.DataFrame | None,
    results: dict[str, Any],
    out: Path,
) -> None:
    """law.png: gold by KL for each axis; quality.png: heights by axis; beta.png: beta and best-of-n at equal KL."""
    start = results["start"]
    bon = bon[bon["split"] == "select"]
    there = set(results["levels"])
    axes = {a: names for a, names in _names_by_axis().items() if set(names) <= there}
    if not axes:
        return
    of_level = {level: runs_of(runs, level, NO_KL, start) for level in there}
    save_figure(out / "law.png", 9, 3.9, lambda f: _draw_law(f, axes, of_level, results))
    save_figure(out / "quality.png", 9, 3.4, lambda f: _draw_quality(f, axes, results))
    panels = _beta_panels(runs, bon, shipped, start)
    save_figure(out / "beta.png", 9, 4.2, lambda f: _draw_beta(f, panels, start))


def _names_by_axis() -> dict[str, list[str]]:
    return {
        axis: [level_of(block_name(p, 0)) for p in levels] for axis, (levels, _, _) in AXES.items()
    }


def _label(axis: str, level: str) -> str:
    comparisons, noise, layers = (part[1:] for part in level.split("-"))
    return {"comparisons": comparisons, "noise": f"{float(noise):.0%}", "layers": layers}[axis]


def _draw_law(
    figure: Any,
    axes: Mapping[str, list[str]],
    of_level: Mapping[str, Runs],
    results: Mapping[str, Any],
) -> None:
    panels = figure.subplots(1, len(axes), sharex=True, sharey=True, squeeze=False)[0]
    for panel, (axis, names) in zip(panels, axes.items(), strict=True):
        for colour, level in zip(_colours(len(names)), names, strict=True):
            own = of_level[level]
            _curve(panel, own.kl_SC, own.gold_SC, colour, _label(axis, level))
            law = results["levels"][level]["law"]
            d_P = np.sqrt(np.linspace(0.05, middle_kl(own.kl_SC).max(), 200))
            value = law_basis(d_P, LawForm.RL) @ np.array([law["a"]["mean"], law["b"]["mean"]])
            panel.plot(d_P**2, results["start"] + value, color=colour, ls=":", lw=1)
        panel.legend(
            title=_TITLES[axis],
            loc="lower center",
            bbox_to_anchor=(0.5, 1.0),
            ncols=4,
            handlelength=1.2,
            columnspacing=1,
        )
    for panel in panels:  # once all curves are there, for the panels share the axis
        _kl_axis(panel)
    figure.suptitle(
        "No penalty, means over 8 draws of the proxy. Bars: 95 % intervals of gold, each alone. Dotted: the fitted law",
        size="medium",
    )
    panels[0].set_ylabel("gold (hand-written), select prompts")


def _draw_quality(figure: Any, axes: Mapping[str, list[str]], results: Mapping[str, Any]) -> None:
    panels = figure.subplots(1, len(axes), sharey=True, squeeze=False)[0]
    series = (
        ("RL, stopped at the peak", "#31688e", "o", lambda own: own["peak"]["gain"]),
        ("best-of-n at its best n", BON, "s", lambda own: own["best_of_n"]["peak"]["gain"]),
        ("RL, at the end", "#c2410c", "^", lambda own: own["end"]["gain"]),
    )
    for panel, (axis, names) in zip(panels, axes.items(), strict=True):
        for shift, (label, colour, marker, of) in zip((-0.08, 0.0, 0.08), series, strict=True):
            told = [of(results["levels"][level]) for level in names]
            mean, low, high = (np.array([t[k] for t in told]) for k in ("mean", "low", "high"))
            place = np.arange(len(names)) + shift
            panel.errorbar(
                place,
                mean,
                [mean - low, high - mean],
                color=colour,
                marker=marker,
                ms=4,
                lw=1,
                label=label,
            )
        panel.set_xticks(range(len(names)), [_label(axis, level) for level in names])
        panel.set_xlim(-0.4, len(names) - 0.6)
        panel.set_xlabel(_TITLES[axis])
        panel.axhline(0, color="#cccccc", lw=0.6, zorder=0)
    panels[0].set_ylabel("gold over the start")
    figure.legend(
        *panels[0].get_legend_handles_labels(),
        loc="outside upper center",
        ncols=3,
        title="Means over 8 draws; 95 % intervals: at the peak all seven levels at once, else each alone",
    )


def _beta_panels(
    runs: pd.DataFrame, bon: pd.DataFrame, shipped: pd.DataFrame | None, start: float
) -> list[tuple[str, Mapping[str, Runs], Runs]]:
    middle = level_of(block_name(Proxy(), 0))
    arms = {arm: runs_of(runs, middle, arm, start) for arm in (NO_KL, PRICED)}
    found = [("8 learned proxies (middle level)", arms, bon_runs(bon, middle))]
    if shipped is not None:
        arms = {arm: runs_of(shipped, "arms", arm, start) for arm in (NO_KL, *PENALTY_ARMS)}
        found.append(("the shipped proxy, 8 seeds", arms, bon_runs(bon, SHIPPED)))
    return found


def _draw_beta(
    figure: Any, panels: Sequence[tuple[str, Mapping[str, Runs], Runs]], start: float
) -> None:
    colours = {
        NO_KL: "#000000",
        **dict(zip(PENALTY_ARMS, ("#c2a000", "#31688e", "#c2410c"), strict=True)),
    }
    places = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for place, (title, arms, bon) in zip(places, panels, strict=True):
        for arm, own in arms.items():
            _curve(place, own.kl_SC, own.gold_SC, colours[arm], arm)
        _curve(place, bon.kl_SC, bon.gain_SC + start, BON, "best-of-n", ls="--", marker="")
        mean_C, half_C = start + bon.gain_SC.mean(axis=0), _half_widths(bon.gain_SC)
        place.fill_between(
            bon.kl_SC[0], mean_C - half_C, mean_C + half_C, color=BON, alpha=0.2, lw=0
        )
        place.set_xlim(0, LAW_TO)
        place.set_ylim(-0.8, 1.4)
        _kl_axis(place)
        place.set_title(title)
    figure.legend(
        *places[-1].get_legend_handles_labels(),
        loc="outside upper center",
        ncols=5,
        title=f"Means of 8, up to {LAW_TO:g} nats/sequence; bars and band: 95 % intervals of gold, each alone",
    )
    places[0].set_ylabel("gold (hand-written), select prompts")


def _curve(
    panel: Any, kl_SC: Floats, gold_SC: Floats, colour: str, label: str, **style: Any
) -> None:
    """Means over draws with 95 % intervals of gold."""
    kl_C, gold_C = middle_kl(kl_SC), gold_SC.mean(axis=0)
    panel.plot(kl_C, gold_C, color=colour, label=label, lw=1.4, ms=3, **{"marker": "o", **style})
    if style.get("marker") == "":
        return
    panel.errorbar(kl_C, gold_C, _half_widths(gold_SC), color=colour, ls="", lw=0.7, alpha=0.5)


def _half_widths(gold_SC: Floats) -> Floats:
    """Of the 95 % interval of each evaluation's mean; 0 at the start, which is one for all."""
    return np.array([0.0 if np.ptp(c) == 0 else mean_of(c).high - c.mean() for c in gold_SC.T])


def _kl_axis(panel: Any) -> None:
    panel.set_xscale("function", functions=(np.sqrt, np.square))
    top = panel.get_xlim()[1]
    ticks = [t for t in (0, 0.5, 2, 5, 10, 20, 40, 80) if t <= top and (t != 0.5 or top < 30)]
    panel.set_xlim(left=0)
    panel.set_xticks(ticks, [f"{t:g}" for t in ticks])
    panel.minorticks_off()
    panel.set_xlabel("KL, nats/sequence (square-root scale)")
    panel.axhline(0, color="#cccccc", lw=0.6, zorder=0)


def _colours(num: int) -> list[str]:
    return [ORDERED[round(i * (len(ORDERED) - 1) / max(1, num - 1))] for i in range(num)]
