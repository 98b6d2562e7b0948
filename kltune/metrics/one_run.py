"""A key in, one MLflow run out, though the reply to a create may get lost.

Beside each record lies ``mlflow.json``. It says that a run was asked for before it is, so a create whose
reply was lost is looked for, not repeated. A slow server may still carry out several of them later: those
are found by their key, and put into the trash.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kltune.metrics.jsonl import write_json
from kltune.metrics.mlflow import Store


@dataclass(frozen=True, slots=True)
class RunKey:
    """What marks one run of one experiment."""

    experiment_id: str
    tag: str
    value: str


def ensure_run(
    store: Store, key: RunKey, side: dict[str, Any], path: Path, create: Callable[[], str]
) -> bool:
    """Put the run's id into ``side`` and write it to ``path``; return whether the run is new."""
    if side.get("run_id"):
        return False
    if side.get("was_asked"):
        side["has_doubt"] = True
        if found := store.find_runs(key.experiment_id, key.tag, key.value):
            side["run_id"] = found[0]
            write_json(path, side)
            return False
    side["was_asked"] = True
    write_json(path, side)
    side["run_id"] = create()
    write_json(path, side)
    return True


def drop_twins(store: Store, key: RunKey, side: dict[str, Any], path: Path) -> None:
    """Where a create was repeated, put what came of it later into the trash."""
    if not side.get("has_doubt"):
        return
    for run_id in store.find_runs(key.experiment_id, key.tag, key.value):
        if run_id != side["run_id"]:
            store.discard(run_id)
    del side["has_doubt"]
    write_json(path, side)
