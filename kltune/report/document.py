"""What a report is made of, before it is HTML or Markdown: sections of plain blocks.

Every string in a block is plain text; only the two renderers (page, markdown) turn it into
markup, and they escape all of it. ``Figure.svg`` is the one exception: kltune draws it itself.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One paragraph of text."""

    text: str
    kind: str = "plain"
    """``plain``, ``note`` (small) or ``warning``."""


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list."""

    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """Labelled lines."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """A table; ``marked`` rows are set off."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    marked: frozenset[int] = frozenset()
    numeric: frozenset[int] = frozenset()
    """Columns set flush right."""
    kind: str = ""
    """Class of the table in the page."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One drawing and what it shows, in words that stand without it."""

    svg: str
    caption: str
    is_wide: bool = False


@dataclass(frozen=True, slots=True)
class Figures:
    """Drawings side by side where there is room."""

    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True)
class Card:
    """One completion of a model with its numbers."""

    title: str
    completion: str
    numbers: str


@dataclass(frozen=True, slots=True)
class Cards:
    """Completions of one prompt side by side."""

    title: str
    prompt: str
    cards: tuple[Card, ...]


@dataclass(frozen=True, slots=True)
class Code:
    """A command to copy."""

    text: str


Block = Paragraph | Bullets | Facts | Grid | Figures | Cards | Code


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what is under it."""

    title: str
    anchor: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """A whole report."""

    title: str
    subtitle: str
    headline: str
    """The answer in one sentence."""
    is_answer: bool
    """Whether the headline recommends a setting."""
    sections: tuple[Section, ...]
    is_doubtful: bool = False
    """Whether others may be as good as what it recommends."""
