"""KL and gold along the run where the proxy's unit is another one: the coefficient as typed, relative, converted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from experiment import curves
from numpy.typing import NDArray
from recipes_units import BLOCKS, BUILT_IN, GRPO, SCALES, TYPED, relative
from scipy import stats

COLOURS = dict(zip(SCALES, ("#c96a1b", "black", "#2166ac"), strict=True))
STYLES = dict(zip(SCALES, ("-", "--", ":"), strict=True))
"""Lines that lie on one another stay visible."""


def draw_units(figure: Any, runs: pd.DataFrame, results: dict[str, Any]) -> None:
    """Two rows (KL, gold), a column a kind of coefficient, a line a scale; bands: 95 % over seeds, each alone."""
    columns = {
        f"{TYPED}, as typed": {scale: (BLOCKS[scale], TYPED) for scale in SCALES},
        "0.15 times the scale": {scale: (BLOCKS[scale], relative(scale)) for scale in SCALES},
        f"{GRPO}, converted by kltune": {
            scale: (BUILT_IN if scale == 1 else BLOCKS[scale], GRPO) for scale in SCALES
        },
    }
    axes = figure.subplots(2, 3, sharex=True, sharey="row")
    for place, (title, arms) in enumerate(columns.items()):
        for scale, (block, arm) in arms.items():
            mine = runs[(runs["block"] == block) & (runs["arm"] == arm)]
            if mine.empty:
                continue
            steps = sorted(mine["step"].unique())
            label = f"{'built-in task, ' if block == BUILT_IN else ''}proxy x {scale:g}: beta {_beta(results, block, arm)}"
            style = {"color": COLOURS[scale], "linestyle": STYLES[scale], "label": label}
            kl_SC = curves(mine, "kl_seq")[arm][:, 1:]
            _line(axes[0, place], steps[1:], np.log(kl_SC), style, np.exp)
            _line(axes[1, place], steps, curves(mine, "gold")[arm], style)
        axes[0, place].set_title(title, fontsize=9)
        axes[1, place].set_xlabel("training step")
        if axes[0, place].lines:  # scaled down, nothing is converted
            axes[0, place].legend(fontsize=7, loc="lower right")
    axes[0, 0].set_yscale("log")
    axes[0, 0].set_ylabel("KL, nats/sequence\n(geometric mean)")
    axes[1, 0].set_ylabel("gold")
    figure.suptitle(
        "One coefficient, the proxy times 1/4, 1 and 4: 8 seeds, bands 95 %, each alone",
        fontsize=10,
    )


def _beta(results: dict[str, Any], block: str, arm: str) -> str:
    scale = "1 (as it ships)" if block == BUILT_IN else block.removeprefix("units-")
    return f"{results['units']['arms'][f'{arm} at {scale}']['beta']:.3g}"


def _line(
    axes: Any,
    steps: list[int],
    values_SC: NDArray[np.float64],
    style: dict[str, Any],
    back: Any = np.asarray,
) -> None:
    """Mean over seeds with its band; ``back``: from the scale of ``values_SC`` to that of the axis."""
    num = len(values_SC)
    mean_C = values_SC.mean(axis=0)
    half_C = stats.t.isf(0.025, num - 1) * values_SC.std(axis=0, ddof=1) / np.sqrt(num)
    axes.plot(steps, back(mean_C), linewidth=1.5, **style)
    axes.fill_between(
        steps, back(mean_C - half_C), back(mean_C + half_C), color=style["color"], alpha=0.12, lw=0
    )
