"""Figures of a study, in kltune's style."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kltune.plot_style import STYLE


def save_figure(path: Path, width: float, height: float, draw: Callable[[Any], None]) -> None:
    """A PNG; ``draw`` gets the empty figure, ``width`` x ``height`` inches."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained", dpi=150)
        FigureCanvasAgg(figure)
        draw(figure)
        figure.savefig(path, format="png", facecolor="white", metadata={"Software": None})


def interval_up(axes: Any, place: float, one: Mapping[str, float], **style: Any) -> None:
    """A mean with its interval, upright at ``place`` on the x axis."""
    axes.errorbar(place, one["mean"], yerr=_around(one), **style)


def interval_across(axes: Any, place: float, one: Mapping[str, float], **style: Any) -> None:
    """A mean with its interval, lying at ``place`` on the y axis."""
    axes.errorbar(one["mean"], place, xerr=_around(one), **style)


def _around(one: Mapping[str, float]) -> list[list[float]]:
    return [[one["mean"] - one["low"]], [one["high"] - one["mean"]]]
