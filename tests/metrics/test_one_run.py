from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from kltune.metrics.jsonl import read_json
from kltune.metrics.mlflow import Store
from kltune.metrics.one_run import RunKey, drop_twins, ensure_run
from kltune.metrics.outage import TrackerOutage


class Runs:
    """Runs that exist, by id."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    def find_runs(self, experiment_id: str, tag: str, value: str) -> list[str]:
        return list(self.ids)

    def discard(self, run_id: str) -> None:
        self.ids.remove(run_id)


KEY = RunKey("1", "kltune.trial_key", "abc/1")


def test_a_run_is_made_once_and_noted(tmp_path: Path) -> None:
    side: dict[str, Any] = {"run_id": None}
    store = cast("Store", cast("Any", Runs()))
    assert ensure_run(store, KEY, side, tmp_path / "mlflow.json", lambda: "r1")
    assert not ensure_run(store, KEY, side, tmp_path / "mlflow.json", lambda: "r2")
    assert read_json(tmp_path / "mlflow.json")["run_id"] == "r1"


def test_creates_that_a_slow_server_carried_out_late_leave_one_run(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.json"
    runs = Runs()
    store = cast("Store", cast("Any", runs))

    def lost() -> str:
        raise TrackerOutage("no answer within 15 s")

    side: dict[str, Any] = {"run_id": None}
    with pytest.raises(TrackerOutage):
        ensure_run(store, KEY, side, path, lost)
    # The process died here; the next one finds nothing, and asks again.
    side = read_json(path)
    assert ensure_run(store, KEY, side, path, lambda: runs.ids.append("r2") or "r2")
    runs.ids.append("r1")  # now the server comes to the first
    drop_twins(store, KEY, side, path)
    assert runs.ids == ["r2"]
    assert "has_doubt" not in read_json(path)
    runs.ids.append("somebody's")
    drop_twins(store, KEY, side, path)  # no doubt, no look
    assert runs.ids == ["r2", "somebody's"]


def test_a_create_whose_reply_was_lost_is_found_by_its_key(tmp_path: Path) -> None:
    runs = Runs()
    runs.ids.append("r1")
    side: dict[str, Any] = {"run_id": None, "was_asked": True}
    store = cast("Store", cast("Any", runs))
    assert not ensure_run(store, KEY, side, tmp_path / "mlflow.json", lambda: "r2")
    assert side["run_id"] == "r1"
