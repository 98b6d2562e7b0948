"""What a report is made of, before it is HTML or Markdown: sections of plain blocks.

Every string in a block is plain text; only the two renderers (page, markdown) turn it into
markup, and they escape all of it. ``Figure.svg`` is the one exception: kltune draws it itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


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
class Chart:
    """The same drawing for a reader with a script: data of plotly.js, strict JSON once encoded.

    A trace whose points are trials has their numbers as ``customdata``: a click opens the trial. Text
    in a trace is markup to plotly.js, so what a model or a user wrote is escaped before it is put there.
    """

    traces: Sequence[Mapping[str, Any]]
    layout: Mapping[str, Any]
    """Axes and their titles; colours of ink, paper and grid, fonts and margins are the page's."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One drawing and what it shows, in words that stand without it."""

    svg: str
    caption: str
    is_wide: bool = False
    chart: Chart | None = None
    """None: the drawing stays as it is."""


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
    change: str = ""
    """What changed since the card before, in words."""


@dataclass(frozen=True, slots=True)
class Cards:
    """Completions of one prompt side by side."""

    title: str
    prompt: str
    cards: tuple[Card, ...]
    note: str = ""
    """Why this prompt is shown."""


@dataclass(frozen=True, slots=True)
class Code:
    """A command to copy."""

    text: str


@dataclass(frozen=True, slots=True)
class Tile:
    """One number of the first screen."""

    label: str
    value: str
    note: str = ""
    """Its interval, unit or basis."""


@dataclass(frozen=True, slots=True)
class Hero:
    """The first screen: what to type, what it gives, when to stop, how sure, against what, at what cost."""

    type_in: tuple[tuple[str, str], ...]
    """What to type: label and value, e.g. ("beta", "0.02 reward per nat of sequence KL")."""
    tiles: tuple[Tile, ...]
    command: str
    """The command that writes it for another trainer."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """What opens when a trial is clicked; all of it is text and numbers."""

    number: int
    title: str
    facts: tuple[tuple[str, str], ...]
    curves: Mapping[str, Sequence[float | None]]
    """Columns of its evaluations and steps by name, as the script draws them."""
    commands: tuple[str, ...]
    """To run it again, to export it."""
    kl_unit: str = ""
    """Unit of the curves of KL, e.g. ``nats/token``."""
    beta_unit: str = ""
    """Unit of beta in words."""


Block = Paragraph | Bullets | Facts | Grid | Figures | Cards | Code | Hero


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
    sheets: tuple[Sheet, ...] = ()
    """Every trial, for the page's script."""
    is_live: bool = False
    """Served while the sweep runs: the page asks for news and shows them."""
