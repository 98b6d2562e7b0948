"""A document in, Markdown out. Text of models and people can't become markup: it is written as entities."""

from __future__ import annotations

import re

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

_ACTIVE = re.compile(r"[&<|`*_\[\]\\~#!$@:]")
_LINE_START = re.compile(
    r"^(\s*)([-+](?=\s|$)|-{2,}\s*$|=+\s*$|>|\d{1,9}[.)](?=\s|$))", re.MULTILINE
)


def escaped(text: str) -> str:
    """Text that shows as it is: whatever Markdown or HTML may act on becomes a character reference."""
    text = _ACTIVE.sub(
        lambda m: m.group() if _is_plain(m) else f"&#{ord(m.group())};", visible(text)
    )
    return _LINE_START.sub(lambda m: f"{m.group(1)}&#{ord(m.group(2)[0])};{m.group(2)[1:]}", text)


def _is_plain(match: re.Match[str]) -> bool:
    """Whether a colon, exclamation mark or at sign stands where it starts no link, emoji code or mention."""
    after = match.string[match.end() : match.end() + 1]
    if match.group() in ":!":
        return after in ("", " ", "\n")
    inside_word = (
        match.start() > 0 and match.string[match.start() - 1].isalnum() and after.isalnum()
    )
    return match.group() == "_" and inside_word


def render_markdown(document: Document) -> str:
    """The whole report as GitHub-flavoured Markdown; figures are in the HTML twin."""
    parts = [
        f"# {escaped(document.title)}",
        f"**{escaped(document.headline)}**",
        escaped(document.subtitle),
        *(_section(section) for section in document.sections),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(section: Section) -> str:
    blocks = [_block(block) for block in section.blocks]
    return "\n\n".join([f"## {escaped(section.title)}", *blocks])


def _block(block: Block) -> str:
    match block:
        case Paragraph(text, kind):
            return f"> **Note:** {_line(text)}" if kind == "warning" else _line(text)
        case Bullets(items):
            return "\n".join(f"- {_line(item)}" for item in items)
        case Facts(pairs):
            return _table(("", ""), tuple((f"**{_line(k)}**", _line(v)) for k, v in pairs))
        case Grid(header, rows):
            return _table(tuple(map(_line, header)), tuple(tuple(map(_line, row)) for row in rows))
        case Figures(figures):
            return "\n".join(f"- Figure in report.html: {_line(f.caption)}" for f in figures)
        case Cards():
            return _cards(block)
        case Hero():
            return _hero(block)
        case Code(text):
            return "\n".join(f"    {line}" for line in visible(text).splitlines())


def _hero(hero: Hero) -> str:
    """A short list: what to type, what it gives, and the command."""
    typed = [f"- **{_line(label)}**: {_line(value)}" for label, value in hero.type_in]
    found = [f"- **{_line(t.label)}**: {_line(t.value)}{_aside(t.note)}" for t in hero.tiles]
    command = "\n".join(f"    {line}" for line in visible(hero.command).splitlines())
    return "\n\n".join(
        [
            "What to type:",
            "\n".join(typed),
            "What it gives:",
            "\n".join(found),
            "To write it for a trainer:",
            command,
        ]
    )


def _aside(note: str) -> str:
    return f" ({_line(note)})" if note else ""


def _cards(block: Cards) -> str:
    cards = block.cards
    header = ("", *(_line(card.title) for card in cards))
    rows = [
        ("**answer**", *(_line(card.completion) for card in cards)),
        ("**scores**", *(_line(card.numbers) for card in cards)),
    ]
    if any(card.change for card in cards):
        rows.append(("**change**", *(_line(card.change) for card in cards)))
    note = f"\n\n{_line(block.note)}" if block.note else ""
    return f"**{_line(block.title)}**: {_line(block.prompt)}{note}\n\n{_table(header, tuple(rows))}"


def _table(header: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _line(text: str) -> str:
    """Escaped text on one line."""
    return escaped(text).replace("\n", "<br>")
