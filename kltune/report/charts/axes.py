"""Titles, values and words in, the parts that plotly.js charts share out: axes, ticks, colour bars, escaped text."""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from kltune.report.charts.numbers import short
from kltune.report.colours import GREY, SCALE
from kltune.report.rows import TrialRow
from kltune.report.text import visible
from kltune.spec.trial import KLUnit
from kltune.trial.words import number, setting_short

FEW_POINTS = 3000
"""Points of a chart up to which each says its setting where the mouse rests."""

LEGEND_Y = 1.02
"""Foot of the legend over the panels, as a share of their height."""
LEGEND_Y_OVER_NOTE = 1.06
"""The same where a note stands between."""

Trace = dict[str, Any]
Layout = dict[str, Any]


def markup(text: str) -> str:
    """Text as plotly.js shows it as it is: its texts are markup, and ``%{`` starts a field."""
    return html.escape(visible(text), quote=False).replace("%{", "%&#123;").replace("\n", "<br>")


def axis(title: str, **more: Any) -> Layout:
    """An axis with a title that names its unit."""
    return {"title": {"text": title}, "automargin": True, **more}


def layout(height: int, *, legend: bool = True, **more: Any) -> Layout:
    """What every chart says of itself: height in pixels, whether it has a legend, and its axes."""
    above = {"orientation": "h", "x": 0, "xanchor": "left", "y": LEGEND_Y, "yanchor": "bottom"}
    return {
        "height": height,
        "showlegend": legend,
        "legend": above,
        "hovermode": "closest",
        **more,
    }


def wrapped(title: str, width: int = 24) -> str:
    """An axis title in lines of about ``width`` characters: a panel of several is short."""
    return "<br>".join(textwrap.wrap(title, width, break_long_words=False))


def setting_words(row: TrialRow, unit: KLUnit) -> str:
    """A trial's setting in short words."""
    return markup(setting_short(row.setting, unit))


def log_ticks(low: float, high: float) -> list[float]:
    """Both ends and the powers of ten between that keep clear of them; all above 0."""
    if low >= high:
        return [low]
    decades = (10.0**n for n in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1))
    air = (high / low) ** 0.08
    return [low, *(d for d in decades if low * air < d < high / air), high]


def log_colour_bar(title: str, low: float, high: float) -> Mapping[str, Any]:
    """Marker settings for colours that are log10 of a number from ``low`` to ``high``."""
    ticks = log_ticks(low, high)
    return {
        "colorscale": [list(stop) for stop in SCALE],
        "cmin": short(math.log10(low)),
        "cmax": short(math.log10(high)),
        "colorbar": {
            "title": {"text": title, "side": "right"},
            "thickness": 12,
            "tickvals": [short(math.log10(tick)) for tick in ticks],
            "ticktext": [number(tick) for tick in ticks],
        },
    }


def colour_bar(title: str, low: float, high: float) -> Mapping[str, Any]:
    """Marker settings for colours that are numbers from ``low`` to ``high``."""
    return {
        "colorscale": [list(stop) for stop in SCALE],
        "cmin": short(low),
        "cmax": short(high),
        "colorbar": {"title": {"text": title, "side": "right"}, "thickness": 12},
    }


def mark_upright(frame: Layout, x: float, words: str) -> None:
    """Add a dotted line at ``x`` over the whole height, and the words over its upper end, to a layout."""
    line = {
        "type": "line",
        "xref": "x",
        "yref": "paper",
        "x0": short(x),
        "x1": short(x),
        "y0": 0,
        "y1": 1,
        "line": {"color": GREY, "width": 1, "dash": "dot"},
    }
    note = {
        "x": short(x),
        "xref": "x",
        "y": 1,
        "yref": "paper",
        "yanchor": "bottom",
        "text": words,
        "showarrow": False,
    }
    frame["shapes"] = [*frame.get("shapes", ()), line]
    frame["annotations"] = [*frame.get("annotations", ()), note]
    frame["legend"] = {**frame["legend"], "y": LEGEND_Y_OVER_NOTE}


def with_gaps(lists: Sequence[Sequence[Any]], gap: Any = None) -> list[Any]:
    """Lists one after another with a gap between: one trace, and no line from one to the next."""
    joined: list[Any] = []
    for values in lists:
        if joined:
            joined.append(gap)
        joined += values
    return joined
