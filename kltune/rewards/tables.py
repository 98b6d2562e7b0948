"""A .jsonl or .csv file in, rows of the asked columns out; what is wrong is named by line."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kltune.errors import SpecError


def read_table(path: Path, columns: Sequence[str], field: str) -> list[tuple[Any, ...]]:
    """Values of ``columns`` in each row; in a .csv file they are text.

    Raises:
        SpecError: another kind of file, one that can't be read, or a row without one of the columns.
    """
    readers = {".jsonl": _jsonl, ".csv": _csv}
    if path.suffix not in readers:
        raise SpecError(f"{field}: {path} must be a .jsonl or a .csv file")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{field}: {path} can't be read ({error})") from error
    rows: list[tuple[Any, ...]] = []
    for line, row in readers[path.suffix](text, path, field):
        lacking = [name for name in columns if row.get(name) is None]
        if lacking:
            raise SpecError(
                f"{field}: {path}, line {line}: no {', '.join(lacking)}; columns there: "
                f"{', '.join(map(str, row)) or 'none'}"
            )
        rows.append(tuple(row[name] for name in columns))
    if not rows:
        raise SpecError(f"{field}: {path} holds no rows")
    return rows


def _jsonl(text: str, path: Path, field: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for line, one in enumerate(text.split("\n"), start=1):
        if not one.strip():
            continue
        try:
            row = json.loads(one)
        except ValueError as error:
            raise SpecError(
                f"{field}: {path}, line {line}: not readable as JSON ({error})"
            ) from error
        if not isinstance(row, dict):
            raise SpecError(f"{field}: {path}, line {line}: expected an object {{...}}")
        yield line, row


def _csv(text: str, path: Path, field: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            if None in row:
                raise SpecError(
                    f"{field}: {path}, line {reader.line_num}: more fields than columns"
                )
            yield reader.line_num, row
    except csv.Error as error:
        raise SpecError(f"{field}: {path}, line {reader.line_num}: {error}") from error
