"""Blocks of a document in, HTML out: every text escaped, every drawing with its words."""

from __future__ import annotations

import html
from collections.abc import Sequence

from kltune.report.canvas import unique_ids
from kltune.report.document import (
    Block,
    Bullets,
    Card,
    Cards,
    Code,
    Facts,
    Figure,
    Figures,
    Grid,
    Hero,
    Paragraph,
    Section,
    Tile,
)
from kltune.report.embed import chart_island
from kltune.report.text import visible

TRIALS = "trials"
"""The kind of the table that holds every trial once."""
TRIAL_COLUMN = "trial"
NOT_PRINTED = (
    "gold: last ± s.e.",
    "proxy: peak → last",
    "beta range",
    "from",
    "time",
)
"""Columns of the table of all trials that paper has no room for: broken words read worse than none."""
LONG_CELL, LONGER_CELL = 48, 120
"""Characters from which a cell asks for room, and for more."""


def escaped(text: str) -> str:
    """Text as HTML that shows it as it is, in attributes too."""
    return html.escape(visible(text), quote=True)


def section_html(section: Section, trials: frozenset[str]) -> str:
    """A section; ``trials`` are the numbers that the page has a row for."""
    blocks = "\n".join(
        _block(block, f"{section.anchor}{index}", trials)
        for index, block in enumerate(section.blocks)
    )
    anchor = escaped(section.anchor)
    return (
        f'<section id="{anchor}" aria-labelledby="{anchor}-title">\n'
        f'<h2 id="{anchor}-title">{escaped(section.title)}</h2>\n{blocks}\n</section>'
    )


def trial_numbers(sections: Sequence[Section]) -> frozenset[str]:
    """Trials that the table of all of them has a row for."""
    grids = (b for s in sections for b in s.blocks if isinstance(b, Grid) and b.kind == TRIALS)
    return frozenset(row[0] for grid in grids for row in grid.rows if row and row[0].isdecimal())


def has_charts(sections: Sequence[Section]) -> bool:
    """Whether a script has anything to draw."""
    return any(
        figure.chart is not None
        for section in sections
        for block in section.blocks
        if isinstance(block, Figures)
        for figure in block.figures
    )


def _block(block: Block, anchor: str, trials: frozenset[str]) -> str:
    match block:
        case Paragraph(text, kind):
            role = ' role="note"' if kind == "warning" else ""
            return f'<p class="{escaped(kind)}"{role}>{escaped(text)}</p>'
        case Bullets(items):
            return "<ul>" + "".join(f"<li>{escaped(item)}</li>" for item in items) + "</ul>"
        case Facts(pairs):
            return f'<dl class="facts">{_pairs(pairs)}</dl>'
        case Grid():
            return _grid(block, trials)
        case Figures(figures):
            drawn = "".join(_figure(f, f"{anchor}-{i}") for i, f in enumerate(figures))
            return f'<div class="figures">{drawn}</div>'
        case Cards():
            return _cards(block)
        case Code(text):
            return _code(text)
        case Hero():
            return _hero(block)


def _pairs(pairs: Sequence[tuple[str, str]]) -> str:
    return "".join(f"<div><dt>{escaped(k)}</dt><dd>{escaped(v)}</dd></div>" for k, v in pairs)


def _code(text: str) -> str:
    return (
        f'<div class="code"><pre tabindex="0"><code>{escaped(text)}</code></pre>'
        '<button type="button" class="copy needs-script">Copy</button></div>'
    )


def _hero(hero: Hero) -> str:
    tiles = "".join(_tile(tile) for tile in hero.tiles)
    settings = f'<dl class="type-in">{_pairs(hero.type_in)}</dl>'
    command = _code(hero.command) if hero.command else ""
    return (
        '<div class="hero"><div class="what"><h3>What to type</h3>'
        f"{settings}{command}</div>"
        f'<ul class="tiles">{tiles}</ul></div>'
    )


def _tile(tile: Tile) -> str:
    note = f'<span class="note">{escaped(tile.note)}</span>' if tile.note else ""
    return (
        f'<li><span class="label">{escaped(tile.label)}</span>'
        f'<span class="value">{escaped(tile.value)}</span>{note}</li>'
    )


def _grid(grid: Grid, trials: frozenset[str]) -> str:
    is_all = grid.kind == TRIALS
    linked = {
        place for place, name in enumerate(grid.header) if name.strip().lower() == TRIAL_COLUMN
    }
    aside = {p for p, name in enumerate(grid.header) if is_all and name in NOT_PRINTED}
    head = "".join(
        f'<th scope="col"{_classes(place in grid.numeric and "number", place in aside and "aside")}>'
        f"{escaped(name)}</th>"
        for place, name in enumerate(grid.header)
    )
    lines: list[str] = []
    for index, row in enumerate(grid.rows):
        cells = "".join(
            f"<td{_classes(_room(cell, place in grid.numeric), place in aside and 'aside')}>"
            f"{_cell(cell, trials if place in linked else frozenset())}</td>"
            for place, cell in enumerate(row)
        )
        anchor = f' id="trial-{row[0]}"' if is_all and row and row[0] in trials else ""
        lines.append(f"<tr{anchor}{_class('marked', index in grid.marked)}>{cells}</tr>")
    body = "".join(lines)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    kind = escaped(f"scroll {grid.kind}".strip())
    label = "All trials" if is_all else f"Table: {grid.header[0] if grid.header else ''}"
    return f'<div class="{kind}" tabindex="0" role="region" aria-label="{escaped(label)}">{table}</div>'


def _cell(text: str, trials: frozenset[str]) -> str:
    return f'<a href="#trial-{text}">{text}</a>' if text in trials else escaped(text)


def _room(text: str, is_number: bool) -> str:
    """A sentence in a narrow column would make its row as high as a page."""
    if is_number:
        return "number"
    return "longer" if len(text) > LONGER_CELL else "long" if len(text) > LONG_CELL else ""


def _figure(figure: Figure, prefix: str) -> str:
    """The drawing, and beside it what the script draws in its place."""
    label = escaped(figure.caption)
    svg = unique_ids(figure.svg, prefix).replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
    names = [
        n for n, is_on in (("wide", figure.is_wide), ("interactive", bool(figure.chart))) if is_on
    ]
    kind = f' class="{" ".join(names)}"' if names else ""
    data = ""
    if figure.chart is not None:
        data = (
            f'<script type="application/json" class="chart">{chart_island(figure.chart)}</script>'
        )
    return (
        f'<figure{kind}><div class="picture">{svg}</div>{data}'
        f"<figcaption>{label}</figcaption></figure>"
    )


def _cards(cards: Cards) -> str:
    shown = "".join(_card(card) for card in cards.cards)
    why = f'<p class="note">{escaped(cards.note)}</p>' if cards.note else ""
    return (
        f'<div class="story"><h3>{escaped(cards.title)}</h3>{why}'
        f'<p class="prompt"><span class="label">Prompt</span> '
        f'<bdi dir="auto">{escaped(cards.prompt)}</bdi></p>'
        f'<div class="cards">{shown}</div></div>'
    )


def _card(card: Card) -> str:
    change = f'<p class="change">{escaped(card.change)}</p>' if card.change else ""
    return (
        f"<article><h4>{escaped(card.title)}</h4>{change}"
        f'<p class="completion" tabindex="0"><bdi dir="auto">{escaped(card.completion)}</bdi></p>'
        f'<p class="note">{escaped(card.numbers)}</p></article>'
    )


def _class(name: str, is_on: bool) -> str:
    return _classes(is_on and name)


def _classes(*names: str | bool) -> str:
    """An attribute of the names that there are."""
    found = " ".join(name for name in names if isinstance(name, str) and name)
    return f' class="{found}"' if found else ""
