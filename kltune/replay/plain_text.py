"""A document in, the same as plain text out: aligned columns, nothing but characters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kltune.report.document import (
    Block,
    Bullets,
    Cards,
    Code,
    Document,
    Facts,
    Figures,
    Grid,
    Hero,
    Paragraph,
    Section,
)
from kltune.report.text import visible

_MARK = " <"
"""Behind a line of a table that is set off."""


def render_text(document: Document) -> str:
    """The whole document; figures are named by their captions."""
    parts = [
        document.title,
        "=" * len(document.title),
        document.headline,
        document.subtitle,
        *(_section(section) for section in document.sections),
    ]
    return "\n\n".join(part for part in parts if part).replace("\n\n=", "\n=", 1) + "\n"


def _section(section: Section) -> str:
    title = f"{section.title}\n{'-' * len(section.title)}"
    return "\n\n".join([title, *("\n".join(_lines(block)) for block in section.blocks)])


def _lines(block: Block) -> Iterator[str]:
    match block:
        case Paragraph(text):
            yield visible(text)
        case Bullets(items):
            yield from (f"- {_line(item)}" for item in items)
        case Facts(pairs):
            width = max((len(key) for key, _ in pairs), default=0)
            yield from (f"{_line(key):<{width}}  {_line(value)}" for key, value in pairs)
        case Grid():
            yield from _grid(block)
        case Figures(figures):
            yield from (f"[figure: {_line(figure.caption)}]" for figure in figures)
        case Cards(title, prompt, cards):
            yield _line(title)
            yield f"  prompt      {_line(prompt)}"
            for card in cards:
                yield f"  completion  {_line(card.completion)}"
                yield f"  {_line(card.numbers)}"
        case Hero(type_in, tiles, command):
            yield from (f"{_line(label)}: {_line(value)}" for label, value in type_in)
            yield from (
                f"{_line(t.label)}: {_line(t.value)} {_line(t.note)}".rstrip() for t in tiles
            )
            yield f"    {_line(command)}"
        case Code(text):
            yield from (f"    {line}" for line in visible(text).splitlines())


def _grid(grid: Grid) -> Iterator[str]:
    table = [tuple(map(_line, row)) for row in (grid.header, *grid.rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(grid.header))]
    for index, row in enumerate(table):
        mark = _MARK if index - 1 in grid.marked else ""
        yield f"{_aligned(row, widths, grid.numeric)}{mark}".rstrip()


def _aligned(row: Sequence[str], widths: Sequence[int], numeric: frozenset[int]) -> str:
    cells = (
        f"{cell:>{width}}" if place in numeric else f"{cell:<{width}}"
        for place, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join(cells)


def _line(text: str) -> str:
    return visible(text).replace("\n", "⏎")
