"""A study and a folder in; its tables as CSV or Parquet files in the folder out."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from kltune.errors import RunError, SpecError
from kltune.frames.tables import evals_table, samples_table, steps_table, trials_table
from kltune.report.rows import StudyRows

TABLES: Final[Mapping[str, Callable[[StudyRows], pd.DataFrame]]] = MappingProxyType(
    {
        "trials": trials_table,
        "steps": steps_table,
        "evals": evals_table,
        "samples": samples_table,
    }
)
FORMATS: Final = ("csv", "parquet")
COLUMNS: Final = "columns.csv"
"""Unit and meaning of every column; Parquet holds them itself."""

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠", "'")
"""Starts of a text that a spreadsheet may run as a formula, and the mark that says it is text."""


def refused(folder: Path) -> list[str]:
    """Why the tables can't be put there, as one problem of ``--out``; empty where they can. Nothing is made."""
    if folder.exists() and not folder.is_dir():
        return [f"--out: {folder} is a file; the tables need a folder"]
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        return [f"--out: {folder} can't be written to; give a folder that can"]
    own = {f"{name}.{ending}" for name in TABLES for ending in FORMATS} | {COLUMNS}
    foreign = (
        sorted(p.name for p in folder.iterdir() if p.name not in own) if folder.exists() else []
    )
    if foreign:
        more = f" and {len(foreign) - 1} more" if foreign[1:] else ""
        return [
            f"--out: {folder} holds other files ({foreign[0]}{more}); give a new folder, or one of earlier tables"
        ]
    return []


def standing(folder: Path, ending: str) -> list[str]:
    """Names of the files there that writing tables of this format would replace; a person may have edited them."""
    names = [f"{name}.{ending}" for name in TABLES] + [COLUMNS] * (ending == "csv")
    return [name for name in names if (folder / name).exists()]


def write_tables(study: StudyRows, folder: Path, ending: str) -> list[Path]:
    """Write trials, steps, evaluations and samples, each file whole; CSV with `COLUMNS` beside them.

    Raises:
        SpecError: the folder holds other files, or can't be written to.
        RunError: writing failed.
    """
    if problems := refused(folder):
        raise SpecError("; ".join(problems))
    written: list[Path] = []
    described: list[tuple[str, pd.DataFrame]] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, make in TABLES.items():
            table = make(study)
            path = folder / f"{name}.{ending}"
            _replace(path, table, to_parquet if ending == "parquet" else to_csv)
            written.append(path)
            described.append((name, table.iloc[:0]))
        if ending == "csv":
            written.append(folder / COLUMNS)
            _replace(written[-1], _glossary(described), to_csv)
    except OSError as error:
        raise RunError(f"{folder}: it can't be written: {error.strerror or error}") from error
    return written


def to_csv(table: pd.DataFrame, path: Path) -> None:
    """Write UTF-8 CSV (RFC 4180): numbers in full, so that reading gives the same ones; missing cells empty.

    A text that a spreadsheet could run as a formula gets ``'`` in front, and so does one that begins
    with it: taking one ``'`` off the front of a cell gives every text back.
    """
    plain = _flat(table).copy()
    for name in plain.columns:
        if isinstance(plain[name].dtype, pd.CategoricalDtype):
            plain[name] = plain[name].astype("str")
        if plain[name].dtype == "str":
            plain[name] = plain[name].map(_as_text, na_action="ignore")
    plain.columns = pd.Index([_as_text(name) for name in plain.columns])
    plain.to_csv(path, index=False, encoding="utf-8", lineterminator="\r\n")


def to_parquet(table: pd.DataFrame, path: Path) -> None:
    """Write Parquet: ``unit`` and ``meaning`` in the metadata of every column, all units in the schema's."""
    flat = _flat(table)
    units, meanings = table.attrs["units"], table.attrs["meanings"]
    made = pa.Table.from_pandas(flat, preserve_index=False)
    fields = [
        field.with_metadata({"unit": units[field.name], "meaning": meanings[field.name]})
        for field in made.schema
    ]
    own = {"kltune.units": json.dumps(units, ensure_ascii=False)}
    schema = pa.schema(fields, metadata={**(made.schema.metadata or {}), **_bytes(own)})
    pq.write_table(made.cast(schema), path)


def _as_text(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text


def _bytes(values: Mapping[str, str]) -> dict[bytes, bytes]:
    return {key.encode(): value.encode() for key, value in values.items()}


def _flat(table: pd.DataFrame) -> pd.DataFrame:
    """With the index, where it has a name, as the first column."""
    return table if table.index.name is None else table.reset_index()


def _glossary(tables: list[tuple[str, pd.DataFrame]]) -> pd.DataFrame:
    rows = [
        (name, column, table.attrs["units"][column], table.attrs["meanings"][column])
        for name, table in tables
        for column in _flat(table).columns
    ]
    return pd.DataFrame(rows, columns=["table", "column", "unit", "meaning"], dtype="str")


def _replace(path: Path, table: pd.DataFrame, write: Callable[[pd.DataFrame, Path], None]) -> None:
    scratch = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(table, scratch)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
