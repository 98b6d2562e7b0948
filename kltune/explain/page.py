"""Facts in; a screen of at most 100 columns, or strict JSON, out."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SCHEMA: Final = 1
WIDTH: Final = 100
"""Lines of prose that are longer than this are hard to read."""

INFINITE: Final = "∞"
ABSENT: Final = "–"


def show(screen: RenderableType, stream: TextIO | None = None) -> None:
    """Print a screen on stdout (default); colours only on a terminal, and never under NO_COLOR."""
    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    console.width = min(console.width, WIDTH)
    if console.is_terminal:
        console.print(screen)
        return
    with console.capture() as capture:
        console.print(screen)
    lines = (line.rstrip() for line in capture.get().splitlines())
    console.file.write("".join(f"{line}\n" for line in lines))


def strict_json(topic: str, facts: DataclassInstance) -> str:
    """The numbers of a screen as JSON: a float that JSON can't hold is null, and named in ``non_finite``."""
    assert is_dataclass(facts)
    missing: list[str] = []
    body = {name: _strict(value, name, missing) for name, value in asdict(facts).items()}
    payload = {"schema": SCHEMA, "topic": topic, **body, "non_finite": missing}
    return json.dumps(payload, allow_nan=False, ensure_ascii=False, indent=2)


def nats(value: float | None) -> str:
    """Four decimals; very small and very large numbers in three digits."""
    if value is None or math.isnan(value):
        return ABSENT
    if math.isinf(value):
        return INFINITE if value > 0 else f"-{INFINITE}"
    if value == 0:
        return "0"
    return f"{value:.4f}" if 5e-5 <= abs(value) < 1e4 else f"{value:.3g}"


def short(value: float | None, digits: int = 3) -> str:
    """So many digits that count, thousands with commas."""
    if value is None or not math.isfinite(value):
        return nats(value)
    if value != 0 and not 1e-4 <= abs(value) < 1e9:
        return f"{value:.{digits}g}"
    if abs(value) >= 10**digits:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def title(text: str) -> Text:
    """The first line of a screen."""
    return Text(text, style="bold")


def heading(text: str, note: str = "") -> Text:
    """The first line of a part, after an empty one."""
    return Text.assemble("\n", (text, "bold"), (f"  {note}" if note else "", "dim"))


def prose(text: str) -> Text:
    """A sentence or two, wrapped."""
    return Text(text)


def columns(heads: Sequence[str], rows: Iterable[Sequence[str | Text]], left: int = 1) -> Table:
    """A table: the first ``left`` columns and the last are words where ``heads`` ends on a ``<``."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for place, head in enumerate(heads):
        is_words = place < left or head.endswith("<")
        table.add_column(
            head.removesuffix("<"), justify="left" if is_words else "right", no_wrap=not is_words
        )
    for row in rows:
        table.add_row(*row)
    return table


def facts(rows: Iterable[tuple[str, str | Text]]) -> Table:
    """Pairs of a short name and what there is to say."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for name, text in rows:
        table.add_row(name, text if isinstance(text, Text) else Text(text))
    return table


def good(text: str) -> Text:
    """What is as it should be."""
    return Text(text, style="green")


def doubtful(text: str) -> Text:
    """What is worth a thought."""
    return Text(text, style="yellow")


def bad(text: str) -> Text:
    """What is wrong."""
    return Text(text, style="bold red")


def stack(*parts: RenderableType | None) -> Group:
    """Parts below each other, absent ones left out."""
    return Group(*(part for part in parts if part is not None))


def _strict(value: Any, path: str, missing: list[str]) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        missing.append(path)
        return None
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {name: _strict(part, f"{path}.{name}", missing) for name, part in items}
    if isinstance(value, (tuple, list)):
        return [_strict(part, name, missing) for name, part in _numbered(path, value)]
    return value


def _numbered(path: str, parts: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    return ((f"{path}.{place}", part) for place, part in enumerate(parts))
