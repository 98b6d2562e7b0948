"""The figure that opens the page of findings: proxy, gold and KL by step, without a penalty and with k1 in the reward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from experiment_figures import save_figure
from penalties_arms import NO_KL, arm
from penalties_data import Data

COLOURS = {NO_KL: "#606870", arm("k1-reward", 0.05): "#56b4e9", arm("k1-reward", 0.15): "#d55e00"}
PANELS = (
    ("proxy", "proxy: what is trained on"),
    ("gold", "gold: what is wanted"),
    ("kl", "KL, nats/sequence"),
)

KL_TICKS = (0.1, 1, 10, 100)


def draw_hump(data: Data, out: Path) -> None:
    """hump.png; a thin line a seed, a thick one their mean (of KL the geometric one)."""
    save_figure(out / "hump.png", 10, 3.4, lambda figure: _draw(figure, data))


def _draw(figure: Any, data: Data) -> None:
    for ax, (column, title) in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
        first = 1 if column == "kl" else 0  # KL is 0 before training
        for name, colour in COLOURS.items():
            if name not in data.gold:
                continue
            table_SC = getattr(data, column)[name][:, first:]
            mean = np.exp(np.log(table_SC).mean(axis=0)) if first else table_SC.mean(axis=0)
            ax.plot(data.steps[first:], table_SC.T, color=colour, linewidth=0.5, alpha=0.45)
            label = "no KL" if name == NO_KL else f"beta {name.split()[-1]}"
            ax.plot(data.steps[first:], mean, color=colour, linewidth=2.2, label=label)
        if column == "kl":
            ax.set_yscale("log")
            ax.set_yticks(KL_TICKS, [f"{tick:g}" for tick in KL_TICKS])
            ax.minorticks_off()
        ax.set_title(title, fontsize=10)
        ax.set_xlabel("step")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, fontsize=9)
