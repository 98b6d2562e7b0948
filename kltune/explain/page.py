"""Facts in; a screen of at most 100 columns, or strict JSON, out."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SCHEMA: Final = 1
WIDTH: Final = 100
"""Lines of prose that are longer than this are hard to read."""

GAP: Final = 2
"""Empty columns between those of a table."""

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
    return json.dumps(payload, allow_nan=False, indent=2)


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


@dataclass(frozen=True, slots=True)
class Columns:
    """A table where it fits; a list of its rows on a narrower terminal, so that nothing is cut."""

    heads: tuple[str, ...]
    rows: tuple[Sequence[str | Text], ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        if self._least_width() <= options.max_width:
            yield self._table()
            return
        for row in self.rows:
            yield self._cell(0, row)
            yield Padding(self._listed(row), (0, 0, 0, 2))

    def _table(self) -> Table:
        table = Table(box=None, padding=(0, GAP, 0, 0), header_style="dim", pad_edge=False)
        for place, head in enumerate(self.heads):
            is_words = place == 0 or head.endswith("<")
            table.add_column(
                head.removesuffix("<"),
                justify="left" if is_words else "right",
                no_wrap=not self._wraps(place),
                overflow="fold",
            )
        for row in self.rows:
            table.add_row(*row)
        return table

    def _wraps(self, place: int) -> bool:
        """Words do; numbers, and the first column where it holds names that one types, don't."""
        if place > 0:
            return self.heads[place].endswith("<")
        return any(" " in str(row[0]) for row in self.rows)

    def _least_width(self) -> int:
        """Columns below which something would be cut. Rich's own measure lets numbers be cut."""
        total = GAP * (len(self.heads) - 1)
        for place, head in enumerate(self.heads):
            cells = [head.removesuffix("<"), *(str(row[place]) for row in self.rows)]
            parts = [word for cell in cells for word in cell.split()]
            total += max(map(cell_len, parts if self._wraps(place) else cells), default=0)
        return total

    def _listed(self, row: Sequence[str | Text]) -> Text:
        """``head value; head value``, empty ones left out."""
        return Text("; ").join(
            self._cell(place, row) for place in range(1, len(row)) if str(row[place])
        )

    def _cell(self, place: int, row: Sequence[str | Text]) -> Text:
        head = self.heads[place].removesuffix("<")
        return Text.assemble((f"{head} ".lstrip(), "dim"), row[place])


def columns(heads: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Columns:
    """A table: the first column is words, and so is every one whose head ends on a ``<``."""
    return Columns(tuple(heads), tuple(rows))


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
