"""A document in, one self-contained HTML page out: no network, no script, every text escaped."""

from __future__ import annotations

import html
from importlib.resources import files

from kltune.report.canvas import unique_ids
from kltune.report.document import (
    Block,
    Bullets,
    Card,
    Cards,
    Code,
    Document,
    Facts,
    Figure,
    Figures,
    Grid,
    Paragraph,
    Section,
)
from kltune.report.text import visible

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def escaped(text: str) -> str:
    """Text as HTML that shows it as it is, in attributes too."""
    return html.escape(visible(text), quote=True)


def render_page(document: Document) -> str:
    """The whole report as HTML."""
    style = files("kltune.report").joinpath("page.css").read_text(encoding="utf-8")
    links = "".join(f'<a href="#{s.anchor}">{escaped(s.title)}</a>' for s in document.sections)
    is_clear = document.is_answer and not document.is_doubtful
    kind = "answer" if is_clear else "answer none"
    sections = "\n".join(_section(s) for s in document.sections)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="color-scheme" content="light dark">
<title>{escaped(document.title)}</title>
<style>
{style}
</style>
</head>
<body>
<header>
<h1>{escaped(document.title)}</h1>
<p class="sub">{escaped(document.subtitle)}</p>
<p class="{kind}">{escaped(document.headline)}</p>
<nav>{links}</nav>
</header>
<main>
{sections}
</main>
</body>
</html>
"""


def _section(section: Section) -> str:
    blocks = "\n".join(
        _block(block, f"{section.anchor}{index}") for index, block in enumerate(section.blocks)
    )
    return (
        f'<section id="{section.anchor}">\n<h2>{escaped(section.title)}</h2>\n{blocks}\n</section>'
    )


def _block(block: Block, anchor: str) -> str:
    match block:
        case Paragraph(text, kind):
            return f'<p class="{kind}">{escaped(text)}</p>'
        case Bullets(items):
            return "<ul>" + "".join(f"<li>{escaped(item)}</li>" for item in items) + "</ul>"
        case Facts(pairs):
            lines = "".join(f"<dt>{escaped(k)}</dt><dd>{escaped(v)}</dd>" for k, v in pairs)
            return f"<dl>{lines}</dl>"
        case Grid():
            return _grid(block)
        case Figures(figures):
            drawn = "".join(_figure(f, f"{anchor}-{i}") for i, f in enumerate(figures))
            return f'<div class="figures">{drawn}</div>'
        case Cards(title, prompt, cards):
            shown = "".join(_card(card) for card in cards)
            head = f'<h3>{escaped(title)}</h3><p class="prompt"><bdi dir="auto">{escaped(prompt)}</bdi></p>'
            return f'{head}<div class="cards">{shown}</div>'
        case Code(text):
            return f"<pre><code>{escaped(text)}</code></pre>"


def _grid(grid: Grid) -> str:
    head = "".join(f"<th>{escaped(name)}</th>" for name in grid.header)
    lines: list[str] = []
    for index, row in enumerate(grid.rows):
        cells = "".join(
            f"<td{_class('number', place in grid.numeric)}>{escaped(cell)}</td>"
            for place, cell in enumerate(row)
        )
        lines.append(f"<tr{_class('marked', index in grid.marked)}>{cells}</tr>")
    body = "".join(lines)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    kind = f"scroll {grid.kind}".strip()
    return f'<div class="{kind}" tabindex="0">{table}</div>'


def _figure(figure: Figure, prefix: str) -> str:
    label = escaped(figure.caption)
    svg = unique_ids(figure.svg, prefix).replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
    return f"<figure{_class('wide', figure.is_wide)}>{svg}<figcaption>{label}</figcaption></figure>"


def _card(card: Card) -> str:
    return (
        f"<article><h4>{escaped(card.title)}</h4>"
        f'<p class="completion"><bdi dir="auto">{escaped(card.completion)}</bdi></p>'
        f'<p class="note">{escaped(card.numbers)}</p></article>'
    )


def _class(name: str, is_on: bool) -> str:
    return f' class="{name}"' if is_on else ""
