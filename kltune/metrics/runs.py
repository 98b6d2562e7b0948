"""MLflow runs that follow folders: a study's folder to the parent run, a trial's to a child.

Beside each record lies ``mlflow.json``: the run's id and how far it was sent. It is written
before a run is created, so a create whose reply was lost is looked for, not repeated.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import kltune
from kltune.metrics.jsonl import read_json, read_rows, read_rows_from, write_json
from kltune.metrics.mlflow import Store, TrackerRefusal
from kltune.metrics.payload import (
    DatasetFacts,
    Point,
    flatten,
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
from kltune.metrics.tracker import SIDECAR, Tracker, reroot

_logger = logging.getLogger(__name__)
_STUDY_FILES = ("spec.yaml", "resolved.json", "env.json")
_TABLES_SHOWN = 40
"""MLflow's interface lists tables from a tag, whose length is limited."""
_DIED = {
    "state": "interrupted",
    "reason": "interrupted",
    "detail": "its process died; the trial goes on from its last checkpoint when the study is run",
    "feasible": None,
}


@dataclass(slots=True)
class Runs:
    """The parent run of a study and the child runs of its trials."""

    study_path: Path
    store: Store
    experiment_id: str
    key: str
    """Names this mirror of the study; children of another one start afresh."""
    parent_id: str
    stop_watching: Callable[[], None] | None = None
    warned: set[str] = field(default_factory=set[str])

    @classmethod
    def open(
        cls, study_path: Path, tracker: Tracker, name: str, datasets: Sequence[DatasetFacts]
    ) -> Runs:
        """Connect, find or create the parent run, and describe the study on it.

        A tracker that is not the one of last time, or that has lost the run, gets everything anew.
        """
        store = Store.open(tracker)
        experiment_id = store.experiment(name)
        if tracker.is_own:
            reroot(study_path)
        path = study_path / SIDECAR
        side: dict[str, Any] = read_json(path) if path.exists() else {}
        params = store.params_of(side["run_id"]) if side.get("run_id") else {}
        if side.get("tracker") != tracker.fingerprint or params is None:
            side = {"tracker": tracker.fingerprint, "key": uuid4().hex, "run_id": None}
            params = {}
            write_json(path, side)
        elif not side["run_id"]:
            side["run_id"] = store.find_run(experiment_id, "kltune.study_key", side["key"])
        if not side["run_id"]:
            tags = {"kltune.study_key": side["key"], "kltune.version": kltune.__version__}
            side["run_id"] = store.create_run(experiment_id, name, tags, _now_ms())
        write_json(path, side)
        runs = cls(study_path, store, experiment_id, side["key"], side["run_id"])
        runs._describe(params, datasets)
        return runs

    def watch(self) -> None:
        """Log CPU, memory, disk and GPU on the parent; starts anew where MLflow gave up."""
        self._stop_watch()
        self.stop_watching = self.store.watch_system(self.parent_id)

    def log_study(self, values: Sequence[Point]) -> None:
        """Send study metrics to the parent."""
        if values:
            self._warn_refused(self.study_path, self.store.log_points(self.parent_id, values))

    def close(self, status: str, artifacts: Sequence[Path]) -> None:
        """End the parent run."""
        for path in artifacts:
            self._offer("artifacts", self.store.log_file, self.parent_id, path)
        self._stop_watch()
        self._offer("state", self.store.terminate, self.parent_id, status, _now_ms())

    def sync(self, folder: Path, dead_events: int | None = None) -> None:
        """Send what the record of a trial has and its child run has not.

        ``dead_events``: the trial's number of events when this process started. If there are no more
        and none says "ended", the process that ran it is dead.
        """
        if not (folder / CONFIG).exists():
            return
        config = read_json(folder / CONFIG)
        # Events before rows: what an "ended" promises to be there is then read after it.
        events = read_rows(folder / EVENTS)
        side = self._open_child(folder, config, _first_ms(events))
        self._send_params(side, config)
        self._send_rows(folder, side, events)
        self._send_samples(folder, side)
        ending = last_ending(events, int(config["attempt"]))
        if ending is None and len(events) == dead_events:
            ending = {**_DIED, "time": time.time()}
        self._send_warnings(side, events)
        self._send_state(side, config, ending)
        write_json(folder / SIDECAR, side)

    def _describe(self, params: Mapping[str, str], datasets: Sequence[DatasetFacts]) -> None:
        resolved = self.study_path / "resolved.json"
        wanted = flatten(read_json(resolved)) if resolved.exists() else {}
        self.store.set_running(self.parent_id)
        self._set_params(self.parent_id, wanted, params)
        for name in _STUDY_FILES:
            if (self.study_path / name).exists():
                self._offer(
                    "artifacts", self.store.log_file, self.parent_id, self.study_path / name
                )
        if datasets:
            self._offer("datasets", self.store.log_datasets, self.parent_id, datasets)
        self.watch()

    def _open_child(self, folder: Path, config: Mapping[str, Any], start_ms: int) -> dict[str, Any]:
        path = folder / SIDECAR
        side = read_json(path) if path.exists() else {}
        trial_key = f"{self.key}/{config['trial']}"
        if side.get("study_key") != self.key:
            side = {"study_key": self.key, "run_id": None, "offsets": {}, "last": {}}
            side |= {"samples_due": [], "tables": []}
            write_json(path, side)
        elif not side["run_id"]:
            side["run_id"] = self.store.find_run(self.experiment_id, "kltune.trial_key", trial_key)
        if not side["run_id"]:
            tags = {
                "mlflow.parentRunId": self.parent_id,
                "kltune.trial_key": trial_key,
                **trial_tags(config),
                **state_tags(None),
            }
            name = f"trial {config['trial']}"
            side["run_id"] = self.store.create_run(self.experiment_id, name, tags, start_ms)
            side["state"] = ["running", config["attempt"]]
            write_json(path, side)
        return side

    def _send_params(self, side: dict[str, Any], config: Mapping[str, Any]) -> None:
        if side.get("params_of") == config["attempt"]:
            return
        known = self.store.params_of(side["run_id"]) or {}
        self._set_params(side["run_id"], trial_params(config), known)
        side["params_of"] = config["attempt"]

    def _set_params(self, run_id: str, wanted: Mapping[str, str], known: Mapping[str, str]) -> None:
        """Set the params that are new; one that MLflow holds with another value becomes a tag."""
        new = {key: value for key, value in wanted.items() if key not in known}
        changed = {
            f"kltune.changed.{key}": value
            for key, value in wanted.items()
            if known.get(key, value) != value
        }
        if new:
            self._offer("params", self.store.log_params, run_id, new)
        if changed:
            self._offer("tags", self.store.set_tags, run_id, changed)

    def _send_rows(
        self, folder: Path, side: dict[str, Any], events: Sequence[Mapping[str, Any]]
    ) -> None:
        """Send new steps and evaluations as one batch of metrics."""
        offsets, last = dict(side["offsets"]), dict(side["last"])
        merged: dict[str, list[Row]] = {}
        for name in (EVALS, STEPS):
            rows, offsets[name] = read_rows_from(folder / name, offsets.get(name, 0))
            fresh = [row for row in rows if row["step"] > last.get(name, -1)]
            merged[name] = merge_attempts(fresh, events)
            last[name] = max((row["step"] for row in merged[name]), default=last.get(name, -1))
        batch = [*merged[STEPS], *merged[EVALS]]
        if not batch:
            return
        self._warn_refused(folder, self.store.log_points(side["run_id"], points(batch)))
        side["offsets"], side["last"] = offsets, last
        side["samples_due"] += [[row["step"], row["attempt"]] for row in merged[EVALS]]
        # Noted at once: an outage from here on must not send the same points again.
        write_json(folder / SIDECAR, side)

    def _send_samples(self, folder: Path, side: dict[str, Any]) -> None:
        samples = read_rows(folder / SAMPLES) if side["samples_due"] else []
        while side["samples_due"]:
            due = side["samples_due"][0]
            kept = [sample for sample in samples if [sample["step"], sample["attempt"]] == due]
            if kept:
                name = f"samples/step_{due[0]:05d}.json"
                table = sample_table(kept)
                self._offer("artifacts", self.store.log_text, side["run_id"], table, name)
                side["tables"] = [*(t for t in side["tables"] if t != name), name]
            del side["samples_due"][0]

    def _send_state(
        self, side: dict[str, Any], config: Mapping[str, Any], ending: Mapping[str, Any] | None
    ) -> None:
        state = "running" if ending is None else str(ending["state"])
        if side.get("state") == [state, config["attempt"]]:
            return
        shown = [{"path": name, "type": "table"} for name in side["tables"][-_TABLES_SHOWN:]]
        tables = {"mlflow.loggedArtifacts": json.dumps(shown)} if shown else {}
        tags = {**trial_tags(config), **state_tags(ending), **tables}
        self._offer("tags", self.store.set_tags, side["run_id"], tags)
        if ending is None:
            self._offer("state", self.store.set_running, side["run_id"])
        else:
            end_ms = int(ending["time"] * 1000)
            status = run_status(state)
            self._offer("state", self.store.terminate, side["run_id"], status, end_ms)
        side["state"] = [state, config["attempt"]]

    def _send_warnings(self, side: dict[str, Any], events: Sequence[Mapping[str, Any]]) -> None:
        tag = warning_tag(standing_warnings(events))
        if tag["kltune.warnings"] != side.get("warnings", ""):
            self._offer("tags", self.store.set_tags, side["run_id"], tag)
            side["warnings"] = tag["kltune.warnings"]

    def _offer(self, what: str, send: Callable[..., object], *args: object) -> None:
        """Call ``send``; a refusal is reported once per kind and does not stop the mirror."""
        try:
            send(*args)
        except TrackerRefusal as error:
            self._warn(f"MLflow refused {what} ({error}); they are in {self.study_path} only")

    def _warn_refused(self, folder: Path, names: Sequence[str]) -> None:
        for name in names:
            self._warn(f"MLflow refused values of {name}; they are in {folder} only", name)

    def _warn(self, text: str, key: str | None = None) -> None:
        if (key or text) not in self.warned:
            self.warned.add(key or text)
            _logger.warning("%s", text)

    def _stop_watch(self) -> None:
        if self.stop_watching is not None:
            self.stop_watching()
            self.stop_watching = None


def _first_ms(events: Sequence[Mapping[str, Any]]) -> int:
    """When a trial began, which may be long before its run is created."""
    return int(events[0]["time"] * 1000) if events else _now_ms()


def _now_ms() -> int:
    return int(time.time() * 1000)
