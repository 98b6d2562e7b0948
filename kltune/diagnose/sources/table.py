"""A CSV table in, its runs out: a plain one with a step column, or an export of Weights & Biases."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from kltune.diagnose.sources.raw import Merger, RawRun, number, step_name, step_number
from kltune.errors import StudyError

_EXPORT: Final = re.compile(r"(?P<run>.+) - (?P<metric>\S.*?)(?P<range>__MIN|__MAX)?")
_COMMA_NUMBER: Final = re.compile(r"\s*-?\d+,\d+\s*")
_AXES: Final = ("step", "_step", "epoch", "relative time (process)", "relative time (wall)")


def read_table(path: Path) -> list[RawRun]:
    """Read every run of a CSV file, streamed.

    In an export of Weights & Biases each column is ``<run> - <metric>``, and one file may hold
    several runs; its columns ``__MIN`` and ``__MAX`` are left out. Raises `StudyError` for
    columns separated by semicolons, decimal commas, or a table without numbers.
    """
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        head = file.readline()
        separator = _separator(path, head)
        file.seek(0)
        lines = csv.reader((line.replace("\0", "") for line in file), delimiter=separator)
        header = [name.strip() for name in next(lines, [])]
        columns, is_export = _columns(path, header)
        runs = _fill(path, lines, header, columns)
    kind = "Weights & Biases export" if is_export else "CSV table"
    # An export shows its runs under their own names, so that --run can pick one.
    found = [
        merger.run(f"{path} ({name})" if name else str(path), kind) for name, merger in runs.items()
    ]
    found = [run for run in found if run.rows]
    if not found:
        raise StudyError(f"{path}: the table holds no row with a number in it")
    return found


def _separator(path: Path, head: str) -> str:
    counts = {sign: head.count(sign) for sign in (",", "\t", ";")}
    best = max(counts, key=lambda sign: counts[sign])
    if best == ";" and counts[best] > 0:
        raise StudyError(
            f"{path}: its columns are separated by semicolons, which goes with decimal commas; export "
            "it with commas (or tabs) between columns and points in numbers"
        )
    return best


Columns = Mapping[int, tuple[str, str]]
"""(run, metric) by the index of the column."""


def _columns(path: Path, header: Sequence[str]) -> tuple[Columns, bool]:
    if not any(header) or all(number(name) is not None for name in header):
        raise StudyError(
            f"{path}: the first line must name the columns (found {', '.join(header)!r})"
        )
    matches = {index: _EXPORT.fullmatch(name) for index, name in enumerate(header)}
    named = {index: match for index, match in matches.items() if match is not None}
    others = [name for index, name in enumerate(header) if index not in named]
    is_export = bool(named) and all(
        step_name([name]) or name.lower() in _AXES or not name for name in others
    )
    if not is_export:
        return {index: ("", name) for index, name in enumerate(header) if name}, False
    kept = {
        index: (match["run"], match["metric"])
        for index, match in named.items()
        if match["range"] is None
    }
    return kept, True


def _fill(
    path: Path, lines: Iterable[list[str]], header: Sequence[str], columns: Columns
) -> dict[str, Merger]:
    step_column = step_name(header)
    step_index = header.index(step_column) if step_column is not None else None
    runs: dict[str, Merger] = {run: Merger() for run, _ in columns.values()}
    for row_number, cells in enumerate(_rows(path, lines), start=1):
        step = row_number if step_index is None else _step(cells, step_index)
        by_run: dict[str, dict[str, float]] = {run: {} for run in runs}
        for index, (run, metric) in columns.items():
            if index == step_index or index >= len(cells) or not cells[index].strip():
                continue
            value = number(cells[index])
            if value is not None:
                by_run[run][metric] = value
            elif _COMMA_NUMBER.fullmatch(cells[index]):
                raise StudyError(
                    f"{path}: row {row_number}, {header[index]}: {cells[index]!r} has a decimal comma; "
                    "export the table with points in numbers"
                )
            else:
                runs[run].text(metric, f"row {row_number}", cells[index])
        _add(runs, by_run, step, row_number, is_numbered=step_index is None)
    return runs


def _add(
    runs: Mapping[str, Merger],
    by_run: Mapping[str, Mapping[str, float]],
    step: int | None,
    row_number: int,
    *,
    is_numbered: bool,
) -> None:
    for run, values in by_run.items():
        if not values:
            continue
        if step is None:
            runs[run].complain(
                "row", "without a whole number as step (left out)", f"row {row_number}"
            )
            continue
        if is_numbered:
            runs[run].complain(
                "row", "without a step (the number of the row stands for it)", f"row {row_number}"
            )
        runs[run].add(step, values)


def _step(cells: Sequence[str], index: int) -> int | None:
    return step_number(cells[index]) if index < len(cells) else None


def _rows(path: Path, lines: Iterable[list[str]]) -> Iterator[list[str]]:
    try:
        yield from lines
    except csv.Error as error:
        raise StudyError(f"{path}: not readable as CSV ({error})") from error
