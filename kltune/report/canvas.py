"""A canvas size in, inline SVG text out that takes its colours from the page around it."""

from __future__ import annotations

import io
import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    return re.sub(r"\s*\n\s*", " ", svg).strip()


def unique_ids(svg: str, prefix: str) -> str:
    """Make every id of an SVG its own, so that several fit on one page."""
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r"url\(#", f"url(#{prefix}-", svg)
    return re.sub(r'href="#', f'href="#{prefix}-', svg)
