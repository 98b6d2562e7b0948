"""A study in; its trials, steps, evaluations and kept completions as pandas tables out.

Names are those of the registry (kltune.metrics.names), of report.json and of the spec; units and
meanings are in ``attrs`` of every table. Read from the record on disk: a running study has what it has.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import nan
from typing import Any

import numpy as np
import pandas as pd

from kltune.frames.columns import (
    Column,
    eval_columns,
    is_measured,
    other_golds,
    sample_columns,
    step_columns,
    trial_columns,
)
from kltune.metrics.jsonl import read_rows
from kltune.metrics.rows import SAMPLES, Row
from kltune.report.native import native_coefficient
from kltune.report.rows import StudyRows, TrialRow
from kltune.trial.record import TrialRecord, each_trial

_INTEGER = ("trial", "attempt", "seed", "step", "steps", "best_step", "num_tokens")
_CATEGORY = ("origin", "penalty", "controller", "state", "reason")
_FLAG = ("feasible", "ended")
_TEXT = ("detail", "warnings", "prompt_id", "prompt", "completion")


def trials_table(study: StudyRows) -> pd.DataFrame:
    """One row a trial, by number (the index)."""
    golds = other_golds(study)
    rows = [_trial(study, row, golds) for row in study.trials]
    table = _table(rows, trial_columns(study))
    return _described(table.set_index("trial"), trial_columns(study))


def steps_table(study: StudyRows) -> pd.DataFrame:
    """One row a training step, by trial and step; metrics that no step has are left out."""
    rows = ((record, record.steps) for record in _records(study))
    return _measured(rows, step_columns(study))


def evals_table(study: StudyRows) -> pd.DataFrame:
    """One row an evaluation, by trial and step; metrics that no evaluation has are left out."""
    rows = ((record, record.evals) for record in _records(study))
    return _measured(rows, eval_columns(study))


def samples_table(study: StudyRows) -> pd.DataFrame:
    """One row a kept completion, by trial and step, in the order in which they were kept."""
    golds = other_golds(study)
    rows = [
        _sample(row, golds)
        for record in _records(study)
        for row in _standing(record, read_rows(record.folder / SAMPLES))
    ]
    return _described(_table(rows, sample_columns(study)), sample_columns(study))


def _records(study: StudyRows) -> Iterator[TrialRecord]:
    """One at a time: those of 1,000 trials take half a gigabyte."""
    # Folder names are numbers with leading zeros, so this is the order of the trials.
    return each_trial(study.path)


def _trial(study: StudyRows, row: TrialRow, golds: Sequence[str]) -> dict[str, Any]:
    start, peak, last, moved = row.start, row.peak, row.final, row.beta_range
    setting = row.setting
    others = {} if peak is None else peak.others
    return {
        "trial": row.number,
        "attempt": row.attempt,
        "origin": row.origin,
        "beta": setting.beta,
        "penalty": None if setting.penalty is None else setting.penalty.value,
        "controller": setting.controller.value,
        "target_kl": setting.target_kl,
        "horizon": setting.horizon,
        "learning_rate": setting.learning_rate,
        "seed": setting.seed,
        "coefficient": native_coefficient(study, row),
        "state": row.state.value,
        "reason": None if row.reason is None else row.reason.value,
        "detail": row.detail,
        "warnings": ", ".join(warning.guard for warning in row.warnings),
        "feasible": row.is_feasible,
        "value": row.value,
        "gold_start": None if start is None else start.gold,
        "gold_start_se": None if start is None else start.gold_se,
        "gold_peak": None if peak is None else peak.gold,
        "gold_peak_se": None if peak is None else peak.gold_se,
        "gold_final": row.gold_final,
        "gold_last": None if last is None else last.gold,
        "gold_last_se": None if last is None else last.gold_se,
        "proxy_peak": None if peak is None else peak.proxy,
        "proxy_last": None if last is None else last.proxy,
        "kl_token": None if peak is None else peak.kl_token,
        "kl_seq": None if peak is None else peak.kl_seq,
        "best_step": None if peak is None else peak.step,
        "beta_low": None if moved is None else moved[0],
        "beta_high": None if moved is None else moved[1],
        "steps": row.steps_run,
        "seconds": row.seconds,
        **{f"gold_{name}_peak": others[name].mean if name in others else None for name in golds},
    }


def _sample(row: Mapping[str, Any], golds: Sequence[str]) -> dict[str, Any]:
    own: Mapping[str, Any] = row.get("golds") or {}
    return {**row, **{f"gold_{name}": own.get(name) for name in golds}}


def _standing(record: TrialRecord, samples: Iterable[Row]) -> list[Row]:
    """Samples of the evaluations that still count: the rest are of weights that no longer exist."""
    attempts = {int(row["step"]): int(row["attempt"]) for row in record.evals}
    kept = [row for row in samples if attempts.get(int(row["step"])) == int(row["attempt"])]
    return sorted(kept, key=lambda row: int(row["step"]))


def _measured(
    trials: Iterable[tuple[TrialRecord, Sequence[Row]]], columns: Sequence[Column]
) -> pd.DataFrame:
    """Rows of numbers, kept as columns of plain doubles: 1,000 trials are five million numbers."""
    found: dict[str, array[float]] = {}
    head = {name: array("q") for name in ("trial", "step", "attempt")}
    time = array("d")
    count = 0
    for record, rows in trials:
        for row in rows:
            for name in ("step", "attempt"):
                head[name].append(int(row[name]))
            head["trial"].append(record.number)
            time.append(_number(row.get("time")))
            _add(found, row, count)
            count += 1
    for values in found.values():
        values.extend([nan] * (count - len(values)))
    every: dict[str, Any] = {**head, "time": time, **found}
    known = [c for c in columns if c.name in every]
    data = {c.name: np.array(every[c.name]) for c in known}
    return _described(pd.DataFrame(data), known)


def _add(found: dict[str, array[float]], row: Row, count: int) -> None:
    for name, value in row.items():
        if is_measured(name):
            held = found.setdefault(name, array("d"))
            if len(held) < count:
                held.extend([nan] * (count - len(held)))
            held.append(_number(value))


def _number(value: object) -> float:
    """Null (not finite) becomes NaN."""
    return float(value) if isinstance(value, int | float) else nan


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> pd.DataFrame:
    """The rows with a type for each column, the same for an empty table."""
    return pd.DataFrame(
        {c.name: _series(c.name, [row.get(c.name) for row in rows]) for c in columns}
    )


def _series(name: str, values: Sequence[Any]) -> pd.Series:
    if name in _INTEGER:
        return pd.Series(list(values), dtype="Int64")
    if name in _FLAG:
        return pd.Series(list(values), dtype="boolean")
    if name in _CATEGORY:
        return pd.Series([_clean(v) for v in values], dtype="str").astype("category")
    if name in _TEXT:
        return pd.Series([_clean(v) for v in values], dtype="str")
    return pd.Series([_number(v) for v in values], dtype="float64")


def _clean(value: object) -> str | None:
    """Text that UTF-8 can hold: a lone surrogate, which a tokenizer may give, becomes U+FFFD."""
    if value is None:
        return None
    return str(value).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _described(table: pd.DataFrame, columns: Sequence[Column]) -> pd.DataFrame:
    shown = {*table.columns, table.index.name}
    known = [c for c in columns if c.name in shown]
    table.attrs["units"] = {c.name: c.unit for c in known}
    table.attrs["meanings"] = {c.name: c.meaning for c in known}
    return table
