"""The MLflow mirror: folders of the record in, one parent run and one child run a trial out.

A daemon thread reads what is new in the JSONL record and sends it; training never waits.
How far a trial was sent stands in its ``mlflow.json``, so an outage, or a process that died,
loses nothing: the next sync goes on from there. A step that was sent stays as it was sent,
even where a later attempt repeats it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kltune.errors import StudyError
from kltune.metrics.jsonl import read_rows
from kltune.metrics.mlflow import TrackerOutage, TrackerRefusal
from kltune.metrics.names import check_names
from kltune.metrics.payload import DatasetFacts, Point, points
from kltune.metrics.rows import CONFIG, EVENTS
from kltune.metrics.runs import Runs
from kltune.metrics.tracker import Tracker, redact

_logger = logging.getLogger(__name__)
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 30.0


@dataclass(slots=True)
class _Todo:
    """What the thread has still to send; guarded by the mirror's condition."""

    folders: dict[Path, None] = field(default_factory=dict[Path, None])
    points: list[Point] = field(default_factory=list[Point])
    closing: str | None = None
    artifacts: tuple[Path, ...] = ()


class MlflowMirror:
    """Keeps an MLflow tracker in step with a study's folder."""

    def __init__(
        self, study_path: Path, tracker: Tracker, name: str, datasets: Sequence[DatasetFacts]
    ) -> None:
        self._study_path = study_path
        self._tracker = tracker
        self._name = name
        self._datasets = tuple(datasets)
        self._changed = threading.Condition()
        self._todo = _Todo()
        self._dead_events: dict[Path, int] = {}
        self._thread: threading.Thread | None = None
        self._runs: Runs | None = None
        self._is_synced = False
        self._is_out = False
        self._busy_s = 0.0

    @property
    def busy_s(self) -> float:
        """CPU seconds that the thread has used so far, MLflow's import included."""
        return self._busy_s

    def start(self) -> None:
        """Start mirroring; call it before the first trial of this process is admitted.

        Trials that look as if they ran belong to a process that died: their runs are ended. What
        an earlier process could not send is sent.
        """
        for config in sorted(self._study_path.glob(f"trials/*/{CONFIG}")):
            self._dead_events[config.parent] = len(read_rows(config.parent / EVENTS))
            self._todo.folders[config.parent] = None
        self._thread = threading.Thread(target=self._run, name="mlflow-mirror", daemon=True)
        self._thread.start()

    def notice(self, trial_folder: Path) -> None:
        """Say that a trial was admitted, evaluated or ended; returns at once."""
        with self._changed:
            self._todo.folders[trial_folder] = None
            self._changed.notify()

    def log_study(self, values: Mapping[str, float], step: int) -> None:
        """Record study metrics after ``step`` ended trials; returns at once."""
        check_names(values)
        found = points([{**values, "time": time.time(), "step": step}])
        with self._changed:
            self._todo.points += found
            self._changed.notify()

    def close(self, status: str, artifacts: Sequence[Path] = (), timeout_s: float = 15.0) -> bool:
        """Send what is left and end the parent run; return whether everything arrived.

        ``status``: FINISHED, KILLED or FAILED. ``artifacts``: files such as the report. Never takes
        longer than ``timeout_s``; what is missing is sent at the next start of the study.
        """
        thread = self._thread
        if thread is None:
            return False
        with self._changed:
            self._todo.closing = status
            self._todo.artifacts = tuple(artifacts)
            self._changed.notify()
        thread.join(timeout_s)
        if not self._is_synced:
            _logger.warning(
                "MLflow at %s has not got everything. The record in %s is complete; the next start "
                "of this study sends the rest",
                redact(self._tracker.uri),
                self._study_path,
            )
        return self._is_synced

    def _run(self) -> None:
        wait_s = _FIRST_WAIT_S
        while True:
            is_closing = self._todo.closing is not None
            is_sent = self._attempt()
            self._busy_s = time.thread_time()
            if is_closing or self._is_synced:
                return
            with self._changed:
                if is_sent:
                    wait_s = _FIRST_WAIT_S
                    self._changed.wait_for(self._has_work)
                else:
                    self._changed.wait_for(lambda: self._todo.closing is not None, wait_s)
                    wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def _has_work(self) -> bool:
        todo = self._todo
        return bool(todo.folders or todo.points or todo.closing is not None)

    def _attempt(self) -> bool:
        """Send all that is due; return whether it arrived. Reports an outage once."""
        try:
            if self._runs is None:
                self._runs = Runs.open(self._study_path, self._tracker, self._name, self._datasets)
            self._drain(self._runs)
        except (TrackerOutage, TrackerRefusal, StudyError, OSError) as error:
            if not self._is_out:
                _logger.warning(
                    "MLflow at %s: %s. Training goes on; the record in %s keeps everything until "
                    "MLflow takes it",
                    redact(self._tracker.uri),
                    redact(str(error)),
                    self._study_path,
                )
            self._is_out = True
            return False
        if self._is_out:
            _logger.info("MLflow at %s is back and up to date", redact(self._tracker.uri))
            self._runs.watch()
        self._is_out = False
        return True

    def _drain(self, runs: Runs) -> None:
        while (folder := self._next_folder()) is not None:
            try:
                runs.sync(folder, self._dead_events.get(folder))
            except (TrackerOutage, TrackerRefusal):
                with self._changed:
                    self._todo.folders[folder] = None
                raise
            except (StudyError, OSError) as error:
                _logger.warning("%s is not mirrored to MLflow: %s", folder, error)
        with self._changed:
            unsent, self._todo.points = self._todo.points, []
        try:
            runs.log_study(unsent)
        except TrackerOutage:
            with self._changed:
                self._todo.points = unsent + self._todo.points
            raise
        if (status := self._todo.closing) is not None:
            runs.close(status, self._todo.artifacts)
            self._is_synced = True

    def _next_folder(self) -> Path | None:
        with self._changed:
            folder = next(iter(self._todo.folders), None)
            if folder is not None:
                del self._todo.folders[folder]
            return folder
