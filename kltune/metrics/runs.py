"""MLflow runs that follow folders: a study's folder to the parent run, a trial's to a child.

Beside each record lies ``mlflow.json``: the run's id and how far it was sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import kltune
from kltune.metrics.jsonl import read_json, write_json
from kltune.metrics.mlflow import Store
from kltune.metrics.offer import Offer
from kltune.metrics.one_run import RunKey, drop_twins, ensure_run
from kltune.metrics.own_database import point_here
from kltune.metrics.patience import Patience
from kltune.metrics.payload import DatasetFacts, Point, flatten
from kltune.metrics.standing import Standing
from kltune.metrics.tracker import SIDECAR, Tracker
from kltune.metrics.trial_run import IsDead, TrialRuns, set_params

_STUDY_FILES: Final = ("spec.yaml", "resolved.json", "env.json")
_STUDY_KEY: Final = "kltune.study_key"
_ENDED: Final = "ended"
"""In the study's ``mlflow.json``: as what its run was ended; not there while it runs."""


@dataclass(slots=True)
class Runs:
    """The parent run of a study and the child runs of its trials."""

    study_path: Path
    store: Store
    offer: Offer
    side: dict[str, Any]
    """The study's ``mlflow.json``."""
    trials: TrialRuns
    standing: Standing
    files_due: list[Path]
    """Files of the study that its run does not have yet."""
    stop_watching: Callable[[], None] | None = None

    @classmethod
    def open(
        cls,
        study_path: Path,
        tracker: Tracker,
        name: str,
        datasets: Sequence[DatasetFacts],
        patience: Patience | None = None,
    ) -> Runs:
        """Connect, find or create the parent run, and describe the study on it.

        A tracker that is not the one of last time, or that has lost the run, gets everything anew.
        """
        store = Store.open(tracker, patience)
        if tracker.is_own:
            point_here(study_path)
        experiment_id = store.experiment(name)
        path = study_path / SIDECAR
        side: dict[str, Any] = read_json(path) if path.exists() else {}
        params = store.params_of(side["run_id"]) if side.get("run_id") else {}
        if side.get("tracker") != tracker.fingerprint or params is None:
            side = {"tracker": tracker.fingerprint, "key": uuid4().hex, "run_id": None}
            params = {}
        elif not side["run_id"]:
            side["was_asked"] = True
        key = RunKey(experiment_id, _STUDY_KEY, side["key"])
        tags = {key.tag: key.value, "kltune.version": kltune.__version__}
        create = partial(store.create_run, experiment_id, name, tags, _now_ms())
        ensure_run(store, key, side, path, create)
        offer = Offer(study_path, partial(store.is_in_trash, experiment_id))
        trials = TrialRuns(store, offer, experiment_id, side["key"], side["run_id"])
        files = [study_path / file for file in _STUDY_FILES if (study_path / file).exists()]
        standing = Standing.of(side.get("standing", {}))
        runs = cls(study_path, store, offer, side, trials, standing, files)
        runs._describe(params, datasets)
        return runs

    @property
    def parent_id(self) -> str:
        """The study's run."""
        return str(self.side["run_id"])

    def watch(self) -> None:
        """Log CPU, memory, disk and GPU on the parent; starts anew where MLflow gave up."""
        self._stop_watch()
        self.stop_watching = self.store.watch_system(self.parent_id)

    def log_study(self, values: Sequence[Point]) -> None:
        """Send study metrics to the parent."""
        if values:
            self.offer.refused(self.study_path, self.store.log_points(self.parent_id, values))

    def log_standing(self) -> None:
        """Send how the study stands after the trials that ended since last time."""
        if found := self.standing.points():
            self.log_study(found)
            self.standing.settle()
            self.side["standing"] = self.standing.kept()
            write_json(self.study_path / SIDECAR, self.side)

    def log_files(self) -> bool:
        """Send the files that are due; return whether they arrived, those of the trials included."""
        while self.files_due:
            if not self.offer.file(self.store.log_file, self.parent_id, self.files_due[0]):
                break
            del self.files_due[0]
        return self.offer.late is None

    def close(self, status: str) -> None:
        """End the parent run."""
        self.leave()
        self.offer.of("state", self.store.terminate, self.parent_id, status, _now_ms())
        self.side[_ENDED] = status
        write_json(self.study_path / SIDECAR, self.side)
        key = RunKey(self.trials.experiment_id, _STUDY_KEY, self.side["key"])
        drop_twins(self.store, key, self.side, self.study_path / SIDECAR)

    def leave(self) -> None:
        """Stop looking at this machine: others go on with the study."""
        self._stop_watch()

    def sync(self, folder: Path, is_dead: IsDead = lambda _: False) -> bool:
        """Send what the record of a trial has and its child run has not; return whether it has ended.

        ``is_dead``: whether nobody runs a trial with that many events any more, though none of them says
        how it ended.
        """
        found = self.trials.sync(folder, is_dead)
        if found is None:
            return False
        number, ending = found
        self.standing.note(number, ending)
        return ending is not None

    def _describe(self, params: Mapping[str, str], datasets: Sequence[DatasetFacts]) -> None:
        resolved = self.study_path / "resolved.json"
        wanted = flatten(read_json(resolved)) if resolved.exists() else {}
        if self.side.pop(_ENDED, None) is not None:
            write_json(self.study_path / SIDECAR, self.side)
        self.store.set_running(self.parent_id)
        set_params(self.store, self.offer, self.parent_id, wanted, params)
        if datasets:
            self.offer.of("datasets", self.store.log_datasets, self.parent_id, datasets)
        self.watch()

    def _stop_watch(self) -> None:
        stop, self.stop_watching = self.stop_watching, None
        if stop is not None:
            stop()


def has_ended(study_path: Path) -> bool:
    """Whether the study's run was ended and not begun anew: there is nothing to mend, as far as is known here."""
    path = study_path / SIDECAR
    return path.is_file() and _ENDED in read_json(path)


def _now_ms() -> int:
    return int(time.time() * 1000)
