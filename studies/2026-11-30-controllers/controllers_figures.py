"""Figures: KL and beta along the run; error, swings and gold by gain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from controllers_analysis import Found
from controllers_arms import FIXED, FROM_HIGH, GAINS, HALF, RULES, STAGED, STEADY, WHOLE
from controllers_data import Data
from controllers_run import Floats
from experiment_figures import interval_up, save_figure
from experiment_intervals import factor_at_once

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#606870")
GREY = "#606870"
POINT: dict[str, Any] = {"marker": "o", "markersize": 5, "capsize": 2.5}


def draw(runs: pd.DataFrame, steps: pd.DataFrame, results: dict[str, Any], out: Path) -> None:
    """KL and beta along the run: gains.png, cures.png, others.png; error, swings and gold by gain: tracking.png."""
    data = Data.of(runs, steps)
    by_gain = {f"gain {gain:g}": [f"gain {gain:g}"] for gain in GAINS}
    others = {
        "from beta 2": list(FROM_HIGH),
        "64 or 32 sequences a step": [WHOLE, *HALF],
        "threshold rules": list(RULES),
        "staged target": list(STAGED),
    }
    cures = {
        f"gain {gain:g}, target 0.1": [
            f"gain {gain:g}",
            f"gain {gain:g}, never below 0.02",
            f"gain {gain:g} from beta 0.2",
            STEADY,
        ]
        for gain in (0.3, 1.0)
    }
    save_figure(out / "gains.png", 10, 4.6, lambda figure: _tracks(figure, data, by_gain))
    save_figure(out / "tracking.png", 10, 3.6, lambda figure: _by_gain(figure, results))
    if results["cures"]["settings"]:
        save_figure(out / "cures.png", 10, 5.4, lambda figure: _tracks(figure, data, cures))
    if not {*FROM_HIGH, *RULES, *STAGED}.isdisjoint(data.runs):
        save_figure(out / "others.png", 10, 5.2, lambda figure: _tracks(figure, data, others))


def _tracks(figure: Any, data: Data, panels: Mapping[str, Sequence[str]]) -> None:
    """KL over target above, beta below: geometric mean over seeds, its 95 % interval, every seed thinly."""
    shown = {title: [n for n in names if n in data.runs] for title, names in panels.items()}
    shown = {title: names for title, names in shown.items() if names}
    axes = figure.subplots(2, len(shown), sharex=True, sharey="row", squeeze=False)
    for (title, names), above, below in zip(shown.items(), *axes, strict=True):
        above.set_title(title, fontsize=10)
        above.axhline(1, color=GREY, linewidth=0.8, linestyle=":")
        for name, colour in zip(names, COLOURS, strict=False):
            own = data.runs[name]
            label = (
                None if name == title else name.replace(f" {title}", "").removeprefix("threshold ")
            )
            _band(above, [run.kl_T / run.target_T for run in own], colour, None)
            _band(below, [run.beta_T for run in own], colour, label if len(names) > 1 else None)
        if len(names) > 1:
            below.legend(fontsize=7.5, loc="upper left", handlelength=1.2)
        below.set_xlabel("step")
    axes[0, 0].set_yscale("log")
    axes[0, 0].set_ylim(0.03, 25)
    axes[0, 0].set_yticks([0.1, 0.3, 1, 3, 10], ["0.1", "0.3", "1", "3", "10"])
    axes[0, 0].set_ylabel("KL / target")
    axes[1, 0].set_yscale("log")
    axes[1, 0].set_ylabel("beta, reward per nat")


def _band(ax: Any, values: Sequence[Floats], colour: str, label: str | None) -> None:
    num = min(len(one) for one in values)
    logs_ST = np.log([np.maximum(one[1:num], 1e-9) for one in values])
    step_T = np.arange(2, num + 1)
    for one in logs_ST:
        ax.plot(step_T, np.exp(one), color=colour, linewidth=0.4, alpha=0.35)
    found = [factor_at_once(column) for column in logs_ST.T]
    low, mean, high = (np.array([one[key] for one in found]) for key in ("low", "mean", "high"))
    ax.fill_between(step_T, low, high, color=colour, alpha=0.2, linewidth=0)
    ax.plot(step_T, mean, color=colour, linewidth=1.6, label=label)


def _by_gain(figure: Any, results: Found) -> None:
    """Measures by gain, with the fixed betas as bands."""
    settings = results["settings"]
    gains = [gain for gain in GAINS if f"gain {gain:g}" in settings]
    panels = (
        ("late_kl_over_target", "KL / target, last third", 1.0),
        ("late_sd", "sd of log(KL / target), last third", None),
        ("swings", "swings per 10 steps\n(fixed: about its own late KL)", None),
        ("gold_end", "gold at the end", None),
    )
    axes = figure.subplots(1, len(panels))
    for ax, (key, label, line) in zip(axes, panels, strict=True):
        for name, colour in zip(FIXED, COLOURS[1:], strict=False):
            _beside(ax, key, name, colour, results)
        for gain in gains:
            one = settings[f"gain {gain:g}"][key]
            hollow = {"markerfacecolor": "white"} if one["half"] == 0 else {}
            interval_up(ax, gain, one, color=COLOURS[0], **POINT, **hollow)
        ax.set_xscale("log")
        ax.set_xticks(gains, [f"{gain:g}" for gain in gains])
        ax.minorticks_off()
        ax.set_xlabel("gain")
        ax.set_title(label, fontsize=9.5)
        ax.set_ylim(bottom=-0.04 * ax.get_ylim()[1])
        if line is not None:
            ax.axhline(line, color=GREY, linewidth=0.8, linestyle=":", label="the target")
    marks = {"controller, by gain": {}, "the same in every run": {"markerfacecolor": "white"}}
    for word, style in marks.items():  # for the legend alone
        axes[0].plot([], [], color=COLOURS[0], linestyle="", marker="o", label=word, **style)
    handles, words = axes[0].get_legend_handles_labels()
    figure.legend(handles, words, loc="outside lower center", ncols=len(words), fontsize=8.5)


def _beside(ax: Any, key: str, name: str, colour: str, results: Found) -> None:
    """A fixed beta as a band; its swings are those about its own late KL."""
    own = results["noise"] if key == "swings" else results["settings"]
    if name in own:
        one = own[name] if key == "swings" else own[name][key]
        ax.axhspan(one["low"], one["high"], color=colour, alpha=0.15, linewidth=0)
        ax.axhline(one["mean"], color=colour, linewidth=1, label=name)
