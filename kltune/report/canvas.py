"""A canvas size in, inline SVG text out that takes its colours from the page around it."""

from __future__ import annotations

import io
import re
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

INK = "#010203"  # stands for the page's own text colour until the SVG is written
PAPER = "#010204"  # and this for its background
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "kltune",  # the same study gives the same bytes
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.linewidth": 0.6,
    "legend.frameon": False,
}
_PLACES = re.compile(r'( (?:d|x|y)=)("[^"]*")')
_NUMBER = re.compile(r"\d+\.\d{3,}")
_DOT = re.compile(r"M ([\d.]+ [\d.]+) L \1(?= )")


@contextmanager
def drawing(width: float, height: float) -> Generator[tuple[Canvas, list[str]]]:
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
        canvas.savefig(
            stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
    out.append(_inline(stream.getvalue()))


@dataclass(frozen=True, slots=True)
class Trace:
    """A line with a dot at each point."""

    points: Sequence[tuple[float, float]]
    colour: Any
    is_dashed: bool = False


def draw_traces(
    axes: Axes, traces: Iterable[Trace], width: float, dot: float, zorder: float
) -> None:
    """Lines of ``width`` points, then round dots ``dot`` points wide on top.

    All of a kind are one artist, and a line's dots are one path: a line and its markers by
    themselves take ten times the bytes and four times as long.
    """
    from matplotlib.collections import LineCollection, PathCollection
    from matplotlib.path import Path

    drawn = [trace for trace in traces if trace.points]
    for style, capstyle in (("-", "projecting"), ("--", "butt")):
        lines = [trace for trace in drawn if trace.is_dashed == (style == "--")]
        if lines:
            look = {"lw": width, "ls": style, "capstyle": capstyle, "joinstyle": "round"}
            colours = [trace.colour for trace in lines]
            paths = [trace.points for trace in lines]
            axes.add_collection(LineCollection(paths, colors=colours, zorder=zorder, **look))  # type: ignore[arg-type]
    if drawn:
        dots = [
            Path([place for point in trace.points for place in (point, point)], codes)
            for trace in drawn
            if (codes := [Path.MOVETO, Path.LINETO] * len(trace.points))
        ]
        colours = [trace.colour for trace in drawn]
        look = {"facecolors": "none", "edgecolors": colours, "lw": dot, "capstyle": "round"}
        axes.add_collection(PathCollection(dots, zorder=zorder, **look))  # type: ignore[arg-type]


def _inline(svg: str) -> str:
    """Strip what only a file needs and take the page's colour and font."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    width = re.search(r'viewBox="0 0 ([\d.]+)', svg)
    widest = "" if width is None else f' style="max-width: {float(width.group(1)) * 1.55:.0f}px"'
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', rf"\1{widest}", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = svg.replace(INK, "currentColor").replace(PAPER, "var(--paper)")
    svg = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font: \1 system-ui, sans-serif", svg)
    return _lean(re.sub(r"\s*\n\s*", " ", svg).strip())


def _lean(svg: str) -> str:
    """The same drawing in half the bytes: a study may have thousands of lines.

    Coordinates keep 2 of 6 decimals, a hundredth of a point.
    """
    svg = _PLACES.sub(lambda found: f"{found[1]}{_NUMBER.sub(_rounded, found[2])}", svg)
    return _DOT.sub(r"M \1 h0", svg)


def _rounded(found: re.Match[str]) -> str:
    return f"{float(found[0]):.2f}".rstrip("0").rstrip(".")


def unique_ids(svg: str, prefix: str) -> str:
    """Make every id of an SVG its own, so that several fit on one page."""
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r"url\(#", f"url(#{prefix}-", svg)
    return re.sub(r'href="#', f'href="#{prefix}-', svg)
