"""What the tracker is told: rows, settings and events of the record in, plain values out."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from kltune.metrics.gold_names import is_gold_metric
from kltune.metrics.names import METRICS
from kltune.metrics.rows import Row

_PARAM_CHARS = 500
"""What every MLflow server since 1.28 takes."""
_TAG_CHARS = 5000


@dataclass(frozen=True, slots=True)
class Point:
    """One value of one metric."""

    name: str
    value: float
    milliseconds: int
    """Unix time."""
    step: int


@dataclass(frozen=True, slots=True)
class DatasetFacts:
    """The prompts of one split, as a tracker lists them."""

    role: str
    """``train``, ``select`` or ``test``."""
    name: str
    """Name of the task."""
    digest: str
    """Digest of the prompts; MLflow shows its first 36 characters."""
    num_prompts: int
    source: str
    """Where the prompts come from: ``builtin:kitchen``, a file's name."""


def points(rows: Iterable[Row]) -> list[Point]:
    """List the registered metrics of ``rows``; a value that is not finite is left out."""
    return [
        Point(name, float(value), int(row["time"] * 1000), int(row["step"]))
        for row in rows
        for name in (*METRICS, *_further_names(row))
        if isinstance(value := row.get(name), int | float) and math.isfinite(value)
    ]


def _further_names(row: Row) -> list[str]:
    """Metrics of golds beside the objective's."""
    return sorted(name for name in row if name not in METRICS and is_gold_metric(name))


def flatten(obj: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Turn a nested mapping into params ``a.b.c``; lists become JSON, absent values are left out."""
    flat: dict[str, str] = {}
    for key, value in obj.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= flatten(cast("Mapping[str, Any]", value), f"{name}.")
        elif isinstance(value, list):
            flat[name] = json.dumps(value, ensure_ascii=False)[:_PARAM_CHARS]
        elif value is not None and name != "schema":
            flat[name] = str(value)[:_PARAM_CHARS]
    return flat


def trial_params(config: Mapping[str, Any]) -> dict[str, str]:
    """List what a trial ran, from its config.json."""
    units = {key: config.get(key) for key in ("sigma_r", "kl_unit", "beta_unit")}
    return flatten({**config["setting"], **units})


def trial_tags(config: Mapping[str, Any]) -> dict[str, str]:
    """Name a trial, from its config.json."""
    return {
        "kltune.trial_number": str(config["trial"]),
        "kltune.attempt": str(config["attempt"]),
        "kltune.origin": str(config["origin"]),
    }


def state_tags(ending: Mapping[str, Any] | None) -> dict[str, str]:
    """Say how a trial stands: its "ended" event, or none while it runs.

    ``kltune.state`` is ``running``, ``complete`` (ran its course, or ended by a guard),
    ``pruned``, ``failed`` (an error, or a guard that found the set-up at fault) or
    ``interrupted`` (it goes on later); ``kltune.stop_reason`` says why, ``kltune.stop_detail`` in
    the guard's own words, and ``kltune.feasible`` whether the limits are respected, blank where
    that was not judged. A trial that runs again blanks the words of its last end.
    """
    if ending is None:
        blank = dict.fromkeys(("stop_reason", "stop_detail", "feasible"), "")
        return {"kltune.state": "running"} | {f"kltune.{key}": text for key, text in blank.items()}
    feasible = ending.get("feasible")
    return {
        "kltune.state": str(ending["state"]),
        "kltune.stop_reason": str(ending["reason"]),
        "kltune.stop_detail": str(ending["detail"])[:_TAG_CHARS],
        "kltune.feasible": "" if feasible is None else str(bool(feasible)).lower(),
    }


def warning_tag(warnings: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Say what guards warned of, from the ``warning`` events that stand; blank where none did."""
    said = [f"{w['guard']} at step {w['step']}: {w['detail']}" for w in warnings]
    return {"kltune.warnings": "\n".join(said)[:_TAG_CHARS]}


def run_status(state: str) -> str:
    """Translate a trial's state into MLflow's run status (design.md §3, table of endings)."""
    return {
        "running": "RUNNING",
        "complete": "FINISHED",
        "pruned": "KILLED",
        "failed": "FAILED",
        "interrupted": "KILLED",
    }[state]


def sample_table(rows: Sequence[Row]) -> str:
    """Render kept samples as MLflow's table JSON: columns, and one list a sample."""
    columns = [
        "step",
        "prompt_id",
        "prompt",
        "completion",
        "gold",
        "proxy",
        "kl_seq",
        "num_tokens",
        "ended",
    ]
    further = sorted({name for row in rows for name in row.get("golds") or {}})
    data = [
        [*(row.get(c) for c in columns), *((row.get("golds") or {}).get(name) for name in further)]
        for row in rows
    ]
    columns += [f"gold_{name}" for name in further]
    return json.dumps({"columns": columns, "data": data}, ensure_ascii=False, allow_nan=False)
