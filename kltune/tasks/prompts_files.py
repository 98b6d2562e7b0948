"""A prompts file in, its rows as plain Python values out: JSON lines, a JSON array, CSV, Parquet, text.

Every reader gives the rows that it can read and one sentence for each that it can't.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NoReturn, cast

from kltune.errors import SpecError
from kltune.spec.prompts import Format


@dataclass(frozen=True, slots=True)
class RawRow:
    """One row as the source holds it."""

    label: str
    """How messages call it, after the table's word: ``12``, ``12 of train``."""
    id: str
    """What its prompt is called where the row has no ``id``."""
    fields: Mapping[str, Any]
    part: str | None = None
    """The source's own split, where it has any."""


@dataclass(frozen=True, slots=True)
class Table:
    """What a source holds."""

    word: str
    """What a row is called: ``line`` or ``row``."""
    rows: list[RawRow] = field(default_factory=list[RawRow])
    problems: list[str] = field(default_factory=list[str])
    parts: tuple[str, ...] = ()
    """The source's own splits, where it has any."""


def read_file(path: Path, written: Format) -> Table:
    """Read a file of any format but ``datasets``.

    Raises:
        SpecError: it can't be read at all.
    """
    return _READERS[written](path)


def kind(value: object) -> str:
    """What a value is, as a person calls it."""
    if value is None:
        return "null"
    if value == "":
        return "empty text"
    if isinstance(value, bool):
        return "true or false"
    kinds = ((int | float, "a number"), (str, "text"), (list, "a list"))
    return next((word for kind, word in kinds if isinstance(value, kind)), "an object")


def _decoded(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise SpecError("no such file") from error
    except OSError as error:
        raise SpecError(f"can't be read ({error.strerror})") from error
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise SpecError(f"line {line}: not UTF-8 text (byte 0x{raw[error.start]:02x})") from error


def _lines(path: Path) -> Iterator[tuple[int, str, str]]:
    """Number, id and text of every line that is not blank."""
    lines = _decoded(path).split("\n")  # not splitlines(): U+2028 inside a prompt ends no line
    width = len(str(len(lines)))
    for number, text in enumerate(lines, start=1):
        if text.strip():
            yield number, f"line-{number:0{width}d}", text


def _text(path: Path) -> Table:
    rows = [RawRow(str(n), own, {"prompt": text.strip()}) for n, own, text in _lines(path)]
    return Table("line", rows)


def _jsonl(path: Path) -> Table:
    table = Table("line")
    for number, own_id, text in _lines(path):
        try:
            loaded: object = json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            table.problems.append(f"line {number}: not JSON ({error})")
            continue
        if not isinstance(loaded, dict):
            problem = f'must be an object like {{"prompt": "..."}} (got {kind(loaded)})'
            table.problems.append(f"line {number}: {problem}")
            continue
        table.rows.append(RawRow(str(number), own_id, cast("dict[str, Any]", loaded)))
    return table


def _json(path: Path) -> Table:
    """An array of objects; a file of JSON lines that is called .json is read as what it is."""
    text = _decoded(path)
    try:
        loaded: object = json.loads(text, parse_constant=_no_constant) if text.strip() else []
    except json.JSONDecodeError as error:
        if _is_json_lines(text):
            return _jsonl(path)
        raise SpecError(f"not JSON ({error})") from error
    except (ValueError, RecursionError) as error:
        raise SpecError(f"not JSON ({error})") from error
    if not isinstance(loaded, list):
        raise SpecError(_no_array(loaded))
    table = Table("row")
    entries = cast("list[object]", loaded)
    width = len(str(len(entries)))
    for number, entry in enumerate(entries, start=1):
        if isinstance(entry, dict):
            fields = cast("dict[str, Any]", entry)
            table.rows.append(RawRow(str(number), f"row-{number:0{width}d}", fields))
        else:
            problem = f'must be an object like {{"prompt": "..."}} (got {kind(entry)})'
            table.problems.append(f"row {number}: {problem}")
    return table


def _is_json_lines(text: str) -> bool:
    first = next((line for line in text.split("\n") if line.strip()), "")
    try:
        return isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False


def _no_array(loaded: object) -> str:
    """What to do about JSON that is no array; an object with one list in it gets the list's name."""
    wanted = (
        'a .json file must be an array like [{"prompt": "..."}, ...], or hold one object a line'
    )
    if not isinstance(loaded, dict):
        return f"{wanted} (got {kind(loaded)})"
    fields = cast("dict[str, object]", loaded)
    lists = [name for name, value in fields.items() if isinstance(value, list)]
    if len(lists) == 1:
        return f"{wanted} (got an object: write the list under {lists[0]!r} as the whole file)"
    return f"{wanted} (got an object with {', '.join(map(repr, fields)) or 'nothing in it'})"


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _csv(path: Path) -> Table:
    """Quotes, commas and line ends in quotes as RFC 4180 has them; every value is text, as it stands."""
    text = _decoded(path)
    delimiter = "\t" if path.suffix.casefold() == ".tsv" else ","
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    table, names, end = Table("line"), list[str](), 0
    width = len(str(text.count("\n") + 1))
    try:
        for values in reader:
            number, end = end + 1, reader.line_num
            if not values:
                continue
            if not names:
                names = [name.strip() for name in values]
                table.problems.extend(_header_problems(names))
            elif len(values) != len(names):
                problem = f"{len(values)} fields, but the header has {len(names)}"
                table.problems.append(f"line {number}: {problem}: is a comma or a quote unquoted?")
            else:
                fields = dict(zip(names, values, strict=True))
                table.rows.append(RawRow(str(number), f"line-{number:0{width}d}", fields))
    except csv.Error as error:
        table.problems.append(f"line {end + 1}: not CSV ({error})")
    return table


def _header_problems(names: list[str]) -> list[str]:
    twice = sorted({name for name in names if names.count(name) > 1})
    return [f"line 1: the header has {twice[0]!r} more than once"] if twice else []


def _parquet(path: Path) -> Table:
    """A file, or a folder of them; nested columns become lists and dicts."""
    if not path.exists():
        raise SpecError("no such file")
    reader: Any = importlib.import_module("pyarrow.parquet")
    try:
        rows: list[dict[str, Any]] = reader.read_table(path).to_pylist()
    except (OSError, ValueError, NotImplementedError) as error:  # pyarrow's errors are among them
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise SpecError(f"not readable as Parquet: {first}") from error
    return Table("row", numbered(rows))


def numbered(rows: list[dict[str, Any]], part: str | None = None) -> list[RawRow]:
    """Rows with the labels and ids that they get by their number, from 1."""
    width, of = len(str(len(rows))), "" if part is None else f" of {part}"
    return [
        RawRow(f"{number}{of}", f"{part or 'row'}-{number:0{width}d}", fields, part)
        for number, fields in enumerate(rows, start=1)
    ]


_READERS: Final[Mapping[str, Callable[[Path], Table]]] = MappingProxyType(
    {"jsonl": _jsonl, "json": _json, "csv": _csv, "parquet": _parquet, "text": _text}
)
