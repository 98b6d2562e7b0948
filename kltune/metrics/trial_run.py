"""A trial's folder in, its MLflow run out: a child of the study's run, sent once, in order.

How far it was sent stands in the folder's ``mlflow.json``.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kltune.metrics.jsonl import read_json, read_rows, read_rows_from, write_json
from kltune.metrics.mlflow import METRICS_PER_BATCH, Store
from kltune.metrics.offer import Offer
from kltune.metrics.one_run import RunKey, drop_twins, ensure_run
from kltune.metrics.outage import TrackerLoss
from kltune.metrics.payload import (
    Point,
    points,
    run_status,
    sample_table,
    state_tags,
    trial_params,
    trial_tags,
    warning_tag,
)
from kltune.metrics.rows import (
    CONFIG,
    EVALS,
    EVENTS,
    SAMPLES,
    STEPS,
    Row,
    last_ending,
    merge_attempts,
    standing_warnings,
)
from kltune.metrics.tracker import SIDECAR

_TABLES_SHOWN: Final = 40
"""MLflow's interface lists tables from a tag, whose length is limited."""
_DIED: Final = {
    "state": "interrupted",
    "reason": "interrupted",
    "detail": "its process died; the trial goes on from its last checkpoint when the study is run",
    "feasible": None,
}

_Sent = tuple[str, Row, list[Point]]
"""The file that a row is from, the row, and its metrics."""
IsDead = Callable[[int], bool]
"""Whether a trial with that many events, none of which says how it ended, runs no more."""


@dataclass(slots=True)
class TrialRuns:
    """The child runs of one study's run."""

    store: Store
    offer: Offer
    experiment_id: str
    key: str
    parent_id: str

    def sync(self, folder: Path, is_dead: IsDead) -> tuple[int, Mapping[str, Any] | None] | None:
        """Send what the record of a trial has and its run has not; return its number and how it ended.

        None where the folder holds no trial yet; no end where the record has none, dead or not.
        """
        if not (folder / CONFIG).exists():
            return None
        config = read_json(folder / CONFIG)
        # Events before rows: what an "ended" promises to be there is then read after it.
        events = read_rows(folder / EVENTS)
        side = self._open(folder, config, _first_ms(events))
        try:
            ending = self._send(folder, side, config, events, is_dead)
        except TrackerLoss:
            if self.store.params_of(self.parent_id) is None:
                raise
            (folder / SIDECAR).unlink()  # this run alone is gone
            side = self._open(folder, config, _first_ms(events))
            ending = self._send(folder, side, config, events, is_dead)
        write_json(folder / SIDECAR, side)
        return int(config["trial"]), ending

    def _send(
        self,
        folder: Path,
        side: dict[str, Any],
        config: Mapping[str, Any],
        events: Sequence[Mapping[str, Any]],
        is_dead: IsDead,
    ) -> Mapping[str, Any] | None:
        self._send_params(side, config)
        self._send_rows(folder, side, events)
        recorded = last_ending(events, int(config["attempt"]))
        is_left = recorded is None and is_dead(len(events))
        ending = {**_DIED, "time": time.time()} if is_left else recorded
        self._send_warnings(side, events)
        self._send_state(side, config, ending)
        self._send_samples(folder, side)
        if ending is not None:
            self._show_tables(side)
            drop_twins(self.store, self._run_key(config), side, folder / SIDECAR)
        return recorded

    def _run_key(self, config: Mapping[str, Any]) -> RunKey:
        return RunKey(self.experiment_id, "kltune.trial_key", f"{self.key}/{config['trial']}")

    def _open(self, folder: Path, config: Mapping[str, Any], start_ms: int) -> dict[str, Any]:
        path = folder / SIDECAR
        side = read_json(path) if path.exists() else {}
        if side.get("study_key") != self.key:
            side = {"study_key": self.key, "run_id": None, "offsets": {}, "last": {}}
            side |= {"samples_due": [], "tables": []}
        elif not side["run_id"]:
            side["was_asked"] = True
        key = self._run_key(config)
        tags = {
            "mlflow.parentRunId": self.parent_id,
            key.tag: key.value,
            **trial_tags(config),
            **state_tags(None),
        }

        def create() -> str:
            name = f"trial {config['trial']}"
            return self.store.create_run(self.experiment_id, name, tags, start_ms)

        if ensure_run(self.store, key, side, path, create):
            side["state"] = ["running", config["attempt"]]
        return side

    def _send_params(self, side: dict[str, Any], config: Mapping[str, Any]) -> None:
        if side.get("params_of") == config["attempt"]:
            return
        known = self.store.params_of(side["run_id"]) or {}
        set_params(self.store, self.offer, side["run_id"], trial_params(config), known)
        side["params_of"] = config["attempt"]

    def _send_rows(
        self, folder: Path, side: dict[str, Any], events: Sequence[Mapping[str, Any]]
    ) -> None:
        """Send new steps and evaluations, as one batch of metrics if MLflow takes that many."""
        offsets, last = dict(side["offsets"]), side["last"]
        merged: list[_Sent] = []
        for name in (STEPS, EVALS):
            rows, offsets[name] = read_rows_from(folder / name, offsets.get(name, 0))
            fresh = [row for row in rows if row["step"] > last.get(name, -1)]
            merged += [(name, row, points([row])) for row in merge_attempts(fresh, events)]
        for batch in _batches(merged):
            found = [point for _, _, of_row in batch for point in of_row]
            self.offer.refused(folder, self.store.log_points(side["run_id"], found))
            for name, row, _ in batch:
                last[name] = int(row["step"])
                if name == EVALS:
                    side["samples_due"].append([row["step"], row["attempt"]])
            # Noted at once: an outage from here on must not send the same points again.
            write_json(folder / SIDECAR, side)
        side["offsets"] = {**side["offsets"], **offsets}

    def _send_samples(self, folder: Path, side: dict[str, Any]) -> None:
        if not side["samples_due"]:
            return
        # An evaluation's samples are written before its row, so those that are due are there.
        begin = side["offsets"].get(SAMPLES, 0)
        samples, end = read_rows_from(folder / SAMPLES, begin)
        furthest = max(step for step, _ in side["samples_due"])
        while side["samples_due"]:
            due = side["samples_due"][0]
            kept = [sample for sample in samples if [sample["step"], sample["attempt"]] == due]
            if kept:
                name = f"samples/step_{due[0]:05d}.json"
                table = sample_table(kept)
                if not self.offer.file(self.store.log_text, side["run_id"], table, name):
                    return
                side["tables"] = [*(t for t in side["tables"] if t != name), name]
            del side["samples_due"][0]
        if all(sample["step"] <= furthest for sample in samples):
            side["offsets"][SAMPLES] = end

    def _send_state(
        self, side: dict[str, Any], config: Mapping[str, Any], ending: Mapping[str, Any] | None
    ) -> None:
        state = "running" if ending is None else str(ending["state"])
        if side.get("state") == [state, config["attempt"]]:
            return
        tags = {**trial_tags(config), **state_tags(ending)}
        self.offer.of("tags", self.store.set_tags, side["run_id"], tags)
        if ending is None:
            self.offer.of("state", self.store.set_running, side["run_id"])
        else:
            end_ms = int(ending["time"] * 1000)
            status = run_status(state)
            self.offer.of("state", self.store.terminate, side["run_id"], status, end_ms)
        side["state"] = [state, config["attempt"]]

    def _show_tables(self, side: dict[str, Any]) -> None:
        """List the samples where MLflow's interface looks for tables."""
        shown = [{"path": name, "type": "table"} for name in side["tables"][-_TABLES_SHOWN:]]
        if shown and side.get("shown") != len(side["tables"]):
            tag = {"mlflow.loggedArtifacts": json.dumps(shown)}
            self.offer.of("tags", self.store.set_tags, side["run_id"], tag)
            side["shown"] = len(side["tables"])

    def _send_warnings(self, side: dict[str, Any], events: Sequence[Mapping[str, Any]]) -> None:
        tag = warning_tag(standing_warnings(events))
        if tag["kltune.warnings"] != side.get("warnings", ""):
            self.offer.of("tags", self.store.set_tags, side["run_id"], tag)
            side["warnings"] = tag["kltune.warnings"]


def set_params(
    store: Store, offer: Offer, run_id: str, wanted: Mapping[str, str], known: Mapping[str, str]
) -> None:
    """Set the params that are new; one that MLflow holds with another value becomes a tag."""
    new = {key: value for key, value in wanted.items() if key not in known}
    changed = {
        f"kltune.changed.{key}": value
        for key, value in wanted.items()
        if known.get(key, value) != value
    }
    if new:
        offer.of("params", store.log_params, run_id, new)
    if changed:
        offer.of("tags", store.set_tags, run_id, changed)


def _batches(rows: Sequence[_Sent]) -> list[list[_Sent]]:
    """Split rows into parts that MLflow takes in one request each, whole rows only."""
    most = max((len(found) for _, _, found in rows), default=0)
    counts = itertools.accumulate(len(found) for _, _, found in rows)
    room = max(METRICS_PER_BATCH - most, 1)
    parts: dict[int, list[_Sent]] = {}
    for entry, count in zip(rows, counts, strict=True):
        parts.setdefault(count // room, []).append(entry)
    return list(parts.values())


def _first_ms(events: Sequence[Mapping[str, Any]]) -> int:
    """When a trial began, which may be long before its run is created."""
    return int((events[0]["time"] if events else time.time()) * 1000)
