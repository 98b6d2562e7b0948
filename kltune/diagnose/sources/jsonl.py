"""JSON that holds a run's history in, its rows out: lines of any framework, TRL's trainer_state.json, kltune's files."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, cast

from pydantic_core import from_json

from kltune.diagnose.sources.raw import (
    Merger,
    RawRun,
    flat,
    number,
    numbers,
    step_name,
    step_number,
)
from kltune.errors import StudyError

_NOT_METRICS: Final = frozenset({"schema", "trial", "attempt", "epoch", "non_finite"})
_TRL_FACTS: Final = ("max_steps", "num_train_epochs", "train_batch_size")
_CHECKPOINT: Final = re.compile(r"checkpoint-(\d+)")
STATE: Final = "trainer_state.json"


def read_lines(path: Path) -> RawRun:
    """Read a file with one JSON object a line, streamed: verl's file log, TRL's log history, any other.

    A line that is no JSON object (the last one of a run that was killed) is left out and
    counted in the notes. Raises `StudyError` where no line can be read.
    """
    merger, is_verl = Merger(), False
    with path.open("rb") as file:
        for number_of_line, line in enumerate(file, start=1):
            text = line.strip()
            if not text:
                continue
            row = _object(text)
            if row is None:
                merger.complain(
                    "line", "that could not be read (left out)", f"line {number_of_line}"
                )
                continue
            is_verl = is_verl or _is_verl(row)
            add_row(merger, row)
    rows = merger.rows()
    if not rows:
        raise StudyError(
            f"{path}: no line of it is a JSON object with numbers (one object a line is expected)"
        )
    kind, framework = ("verl file log", "verl") if is_verl else ("JSON lines", "")
    return merger.run(str(path), kind, framework)


def read_json(path: Path) -> RawRun:
    """Read one JSON value that holds a history.

    Taken: a Hugging Face ``trainer_state.json``, a list of row objects, an object with such a
    list under ``log_history`` or ``history``, an object of series (``{"train/kl": {"1": 0.1}}``).
    Raises `StudyError` for anything else.
    """
    try:
        found: object = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, UnicodeError) as error:
        raise StudyError(f"{path}: not readable as JSON ({error})") from error
    except RecursionError as error:
        raise StudyError(
            f"{path}: not readable as JSON (its values are nested deeper than any log's)"
        ) from error
    facts: dict[str, object] = {}
    kind, framework = "JSON history", ""
    merger = Merger()
    if isinstance(found, dict):
        whole = cast("dict[str, Any]", found)
        history = whole.get("log_history", whole.get("history"))
        if "log_history" in whole and "global_step" in whole:
            kind, framework = f"TRL {STATE}", "trl"
            facts = {key: whole[key] for key in _TRL_FACTS if whole.get(key) is not None}
        if history is None:
            _add_series(merger, whole)
            history = []
    else:
        history = found
    for row in _row_objects(history):
        add_row(merger, _with_broken(row) if framework == "trl" else row)
    rows = merger.rows()
    if not rows:
        raise StudyError(
            f"{path}: holds no history (looked for log_history, history, a list of row objects, or "
            "series by step)"
        )
    return merger.run(str(path), kind, framework, facts)


def _with_broken(row: Mapping[str, Any]) -> dict[str, Any]:
    """TRL writes none for a metric all of whose values were NaN (its ``log``): these two always have one."""
    broken = {name: math.nan for name in ("kl", "entropy") if name in row and row[name] is None}
    return {**row, **broken}


def trainer_state_of(folder: Path) -> Path | None:
    """Find the state of a Hugging Face output folder: its own, else that of its last checkpoint."""
    if (own := folder / STATE).is_file():
        return own
    found = [
        (int(match[1]), path)
        for path in folder.glob(f"checkpoint-*/{STATE}")
        if (match := _CHECKPOINT.fullmatch(path.parent.name))
    ]
    return max(found)[1] if found else None


def add_row(merger: Merger, row: Mapping[str, Any]) -> None:
    """Add one logged object: its step by any of the usual names, else by the number of the row."""
    # verl writes {"step": 1, "data": {...}}.
    inner: dict[str, Any] = {**row, **row["data"]} if _is_verl(row) else dict(row)
    values = flat({key: value for key, value in inner.items() if key != "data"})
    name = step_name(values)
    step = step_number(values[name]) if name is not None else None
    if name is None:
        step = merger.next_row
        merger.complain(
            "row", "without a step (the number of the row stands for it)", f"row {step}"
        )
    if step is None:
        merger.complain(
            "row", "with a step that is no whole number (left out)", f"{values[str(name)]!r}"
        )
        return
    kept = {key: one for key, one in values.items() if key != name and key not in _NOT_METRICS}
    if isinstance(row.get("non_finite"), list):
        kept["non_finite"] = row["non_finite"]
    for key, one in kept.items():
        if one is not None and number(one) is None and key != "non_finite":
            merger.text(key, f"step {step}", one)
    merger.add(step, numbers(kept))


def _is_verl(row: Mapping[str, Any]) -> bool:
    return isinstance(row.get("data"), dict) and "step" in row


def _object(text: bytes) -> dict[str, Any] | None:
    """The line's object, by a parser three times as fast as ``json``, which has the last word."""
    found: object
    try:
        found = from_json(text)
    except ValueError:
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _row_objects(history: object) -> Iterable[dict[str, Any]]:
    if isinstance(history, list):
        for row in cast("list[object]", history):
            if isinstance(row, dict):
                yield cast("dict[str, Any]", row)


def _add_series(merger: Merger, whole: Mapping[str, Any]) -> None:
    for name, series in whole.items():
        if not isinstance(series, dict):
            continue
        for key, value in cast("dict[str, object]", series).items():
            step, found = step_number(key), number(value)
            if step is not None and found is not None:
                merger.add(step, {name: found})
