"""Strict JSON on disk: mappings in, ``.json`` and ``.jsonl`` files out, and back.

Every object carries ``schema``. JSON has no literal for NaN or infinity, so a non-finite
float is written as null and its key listed under ``non_finite``. A line that a crash cut
short is skipped with a warning; the file itself is never edited.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic_core import from_json

from kltune.errors import StudyError
from kltune.masking import hide_known

SCHEMA = 1
"""Version of every file that this package writes."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Damage:
    """A line of a record that could not be read and was passed over."""

    path: Path
    line: int
    """From 1."""
    is_cut: bool
    """Whether it is an unfinished last line: a process writes there, or was ended while it wrote."""


def append_rows(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Append each mapping as one line, all in a single write.

    Starts on a fresh line where a crash left the last one unfinished. The folder is made
    if it is absent. Raises `OSError` where the disk can't take it all; then the file is as before.
    """
    data = "".join(f"{encode(row)}\n" for row in rows).encode()
    if not data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        size = os.fstat(file).st_size
        if size > 0 and os.pread(file, 1, size - 1) != b"\n":
            data = b"\n" + data
        _write_all(file, data, size)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(file)


def read_rows(path: Path, damage: list[Damage] | None = None) -> list[dict[str, Any]]:
    """Read every whole line of a JSONL file; an absent file has none.

    A broken line is skipped with a warning that names file and line, and added to ``damage``; blank lines
    are passed over. Raises `StudyError` for a row of a newer schema, and where it is no file that can be read.
    """
    if not path.exists():
        return []
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StudyError(f"{path}: can't be read ({error.strerror})") from error
    return _decode_lines(path, data, is_whole=True, damage=damage)


def read_rows_from(path: Path, offset: int) -> tuple[list[dict[str, Any]], int]:
    """Read the lines after byte ``offset`` that are finished; also return where to go on.

    For following a file that grows: an unfinished last line is left for the next call.
    """
    if not path.exists():
        return [], offset
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read()
    end = data.rfind(b"\n") + 1
    return _decode_lines(path, data[:end], is_whole=offset == 0), offset + end


def write_json(path: Path, obj: Mapping[str, object], *, is_durable: bool = False) -> None:
    """Write one object atomically: a reader sees the old file or the new one, never a part.

    ``is_durable``: after a power failure too, for some milliseconds more. Raises `OSError` where the disk
    can't take it; the old file stays then.
    """
    text = encode(obj, indent=2) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with scratch.open("w", encoding="utf-8") as file:
            file.write(text)
            if is_durable:
                file.flush()
                os.fsync(file.fileno())
        scratch.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            scratch.unlink()
        raise


def _write_all(file: int, data: bytes, size: int) -> None:
    """Append to an open file of ``size`` bytes; where that fails half-way, take back what was written of it."""
    written = 0
    try:
        while written < len(data):
            written += os.write(file, data[written:])
    except OSError:
        with contextlib.suppress(OSError):
            # Unless another process wrote after it, whose rows must stay: then the cut line does too.
            if written and os.fstat(file).st_size == size + written:
                os.ftruncate(file, size)
        raise


def read_json(path: Path) -> dict[str, Any]:
    """Read one object.

    Raises `FileNotFoundError` where there is none, and `StudyError` where it is not a JSON
    object or of a newer schema.
    """
    try:
        found: object = json.loads(path.read_text(encoding="utf-8"))
    except IsADirectoryError as error:
        raise StudyError(f"{path}: a folder, not a file") from error
    except (ValueError, RecursionError) as error:
        raise StudyError(f"{path}: not readable as JSON ({error})") from error
    if not isinstance(found, dict):
        raise StudyError(f"{path}: expected a JSON object, found {type(found).__name__}")
    row = cast("dict[str, Any]", found)
    _check_schema(path, row)
    return row


def encode(obj: Mapping[str, object], indent: int | None = None) -> str:
    """Turn a mapping into strict JSON text, with ``schema`` first and ``non_finite`` last.

    Scalars of numpy and zero-dimensional tensors become plain numbers; paths become text.
    Raises `TypeError` for anything else that JSON has no form for.
    """
    lost: list[str] = []
    row: dict[str, object] = {"schema": SCHEMA}
    for key, value in obj.items():
        row[key] = _plain(value, key, lost)
    if lost:
        row["non_finite"] = list(dict.fromkeys(lost))
    text = json.dumps(row, ensure_ascii=False, allow_nan=False, indent=indent)
    if hide_known(text) != text:
        # A secret of the environment that found its way into words of an error, say, ends here.
        text = json.dumps(_hidden(row), ensure_ascii=False, allow_nan=False, indent=indent)
    if text.isascii():
        return text  # most of them
    # A lone surrogate (half an emoji in a user's file), which no file can hold, becomes its JSON escape.
    return text.encode(errors="backslashreplace").decode()


def _hidden(value: object) -> object:
    """The same without secrets in its texts; keys and numbers stay."""
    if isinstance(value, str):
        return hide_known(value)
    if isinstance(value, Mapping):
        items = cast("Mapping[str, object]", value).items()
        return {key: _hidden(item) for key, item in items}
    if isinstance(value, list):
        return [_hidden(item) for item in cast("list[object]", value)]
    return value


def _plain(value: object, key: str, lost: list[str]) -> object:
    """Convert ``value`` to what JSON can hold, noting in ``lost`` the keys of non-finite floats."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        lost.append(key)
        return None
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {str(k): _plain(v, f"{key}.{k}", lost) for k, v in items}
    if isinstance(value, list | tuple):
        return [_plain(v, key, lost) for v in cast("Iterable[object]", value)]
    if isinstance(value, Path):
        return str(value)
    item = getattr(value, "item", None)
    if callable(item):
        return _plain(item(), key, lost)
    raise TypeError(f"{key}: JSON has no form for {type(value).__name__}")


def _decode_lines(
    path: Path, data: bytes, *, is_whole: bool, damage: list[Damage] | None = None
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    lines = data.split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        found = decode(line)
        if not isinstance(found, dict):
            where = f"line {number}" if is_whole else f"new line {number}"
            kind = "cut short" if number == len(lines) else "unreadable"
            _logger.warning("%s: %s is %s and was skipped", path, where, kind)
            if damage is not None:
                damage.append(Damage(path, number, is_cut=number == len(lines)))
            continue
        row = cast("dict[str, Any]", found)
        _check_schema(path, row)
        rows.append(row)
    return rows


def decode(line: bytes) -> object:
    """The line's value, none where it is broken: by a parser three times as fast as ``json``.

    ``json`` has the last word, since it also takes what the other is too strict for (a lone
    surrogate).
    """
    try:
        return from_json(line)
    except ValueError:
        try:
            return json.loads(line)
        except (ValueError, RecursionError):
            return None


def _check_schema(path: Path, row: Mapping[str, Any]) -> None:
    version = row.get("schema", SCHEMA)
    if not isinstance(version, int) or version > SCHEMA:
        raise StudyError(
            f"{path}: written with schema {version}, but this kltune reads up to {SCHEMA}; "
            "upgrade kltune to open it"
        )
