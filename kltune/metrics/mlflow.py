"""The only module that speaks to MLflow: explicit run ids in, one request each out.

MLflow is imported when a `Store` is opened (2 to 4 s), so open it off the main thread. No
fluent call, no active run, no global tracking address. Every failure is one of two:
`TrackerOutage` (try again later) or `TrackerRefusal` (trying again won't help).
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kltune.metrics.payload import DatasetFacts, Point
from kltune.metrics.tracker import Tracker, redact

if TYPE_CHECKING:
    from mlflow.tracking.client import MlflowClient

_DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    # A request that MLflow repeats by itself can create a second run, so we repeat, and look first.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_ARTIFACT_UPLOAD_DOWNLOAD_TIMEOUT": "10",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    # What goes wrong is reported once, by the mirror, without credentials.
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",
}
_FORCED = {
    # MLflow prints the address, credentials included, to stdout, which is for results.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
_REFUSED = range(400, 500)
_TEMPORARY = (401, 403, 408, 409, 425, 429)
"""Of the above, those that a person or time puts right."""
_METRICS_PER_BATCH = 1000
_PARAMS_PER_BATCH = 100
_DIGEST_CHARS = 36
_SYSTEM_INTERVAL_S = 10


class TrackerOutage(Exception):
    """The tracker was not reached, or failed; what was sent may or may not have arrived."""


class TrackerRefusal(Exception):
    """The tracker answered that it will not take this."""


class Store:
    """An open connection to one tracker."""

    def __init__(self, client: MlflowClient, tracker: Tracker) -> None:
        self._client = client
        self._tracker = tracker

    @classmethod
    def open(cls, tracker: Tracker) -> Store:
        """Import MLflow and connect; creates the schema of a new database, one process at a time."""
        for name, value in _DEFAULTS.items():
            os.environ.setdefault(name, value)
        os.environ.update(_FORCED)
        from mlflow.tracking.client import MlflowClient

        with _translated(), _one_process(tracker.sqlite_path):
            client = MlflowClient(tracker.uri, registry_uri=tracker.uri)
            client.search_experiments(max_results=1)
        return cls(client, tracker)

    def experiment(self, name: str) -> str:
        """Find or create an experiment; return its id."""
        with _translated():
            found = self._client.get_experiment_by_name(name)
        if found is None:
            try:
                with _translated():
                    return self._client.create_experiment(name, self._tracker.artifact_root)
            except TrackerRefusal:  # another process was first
                with _translated():
                    found = self._client.get_experiment_by_name(name)
        if found is None or found.lifecycle_stage != "active":
            raise TrackerRefusal(
                f"experiment {name!r} is deleted; restore it (`mlflow experiments restore`)"
            )
        return found.experiment_id

    def create_run(
        self, experiment_id: str, name: str, tags: Mapping[str, str], start_ms: int
    ) -> str:
        """Create a run that began at ``start_ms`` (Unix time); return its id."""
        with _translated():
            run = self._client.create_run(experiment_id, start_ms, dict(tags), name)
        return run.info.run_id

    def find_run(self, experiment_id: str, tag: str, value: str) -> str | None:
        """Look for a run by one tag: a create that failed may have arrived."""
        with _translated():
            found = self._client.search_runs(
                [experiment_id], f"tags.`{tag}` = '{value}'", max_results=1
            )
        return found[0].info.run_id if found else None

    def params_of(self, run_id: str) -> dict[str, str] | None:
        """Return the params of a run that can be written to; none where there is no such run."""
        try:
            with _translated():
                run = self._client.get_run(run_id)
        except TrackerRefusal:
            return None
        return dict(run.data.params) if run.info.lifecycle_stage == "active" else None

    def log_points(self, run_id: str, points: Sequence[Point]) -> list[str]:
        """Send metrics, up to 1000 a request; return the names that were refused.

        Where a batch is refused, its metrics are sent by name, so one bad name costs only itself.
        """
        try:
            self._send_points(run_id, points)
        except TrackerRefusal:
            return [name for name in _names(points) if not self._takes(run_id, points, name)]
        return []

    def log_params(self, run_id: str, params: Mapping[str, str]) -> None:
        """Send params, which MLflow lets nobody change later."""
        from mlflow.entities import Param

        entities = [Param(key, value) for key, value in params.items()]
        with _translated():
            for start in range(0, len(entities), _PARAMS_PER_BATCH):
                part = entities[start : start + _PARAMS_PER_BATCH]
                self._client.log_batch(run_id, params=part, synchronous=True)

    def set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        """Set tags, replacing those of the same name."""
        from mlflow.entities import RunTag

        entities = [RunTag(key, value) for key, value in tags.items()]
        with _translated():
            self._client.log_batch(run_id, tags=entities, synchronous=True)

    def log_text(self, run_id: str, text: str, artifact: str) -> None:
        """Write ``text`` as the artifact of that relative path."""
        with _translated():
            self._client.log_text(run_id, text, artifact)

    def log_file(self, run_id: str, path: Path) -> None:
        """Copy a file into the top of the run's artifacts."""
        with _translated():
            self._client.log_artifact(run_id, str(path))

    def log_datasets(self, run_id: str, datasets: Sequence[DatasetFacts]) -> None:
        """List the prompts that a study uses, with their digests."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        inputs = [
            DatasetInput(
                Dataset(
                    name=f"{facts.name}/{facts.role}",
                    digest=facts.digest[:_DIGEST_CHARS],
                    source_type="kltune",
                    source=json.dumps({"source": facts.source}),
                    profile=json.dumps({"num_prompts": facts.num_prompts}),
                ),
                [InputTag("mlflow.data.context", facts.role)],
            )
            for facts in datasets
        ]
        with _translated():
            self._client.log_inputs(run_id, inputs)

    def set_running(self, run_id: str) -> None:
        """Mark a run as running (again)."""
        with _translated():
            self._client.update_run(run_id, "RUNNING")

    def terminate(self, run_id: str, status: str, end_ms: int) -> None:
        """End a run as FINISHED, KILLED or FAILED at ``end_ms`` (Unix time)."""
        with _translated():
            self._client.set_terminated(run_id, status, end_ms)

    def watch_system(self, run_id: str) -> Callable[[], None]:
        """Start MLflow's own log of CPU, memory, disk and GPU on a run; return how to stop it."""
        from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

        with _translated():
            monitor = SystemMetricsMonitor(
                run_id, _SYSTEM_INTERVAL_S, resume_logging=True, tracking_uri=self._tracker.uri
            )
            monitor.start()
        return monitor.finish

    def _send_points(self, run_id: str, points: Sequence[Point]) -> None:
        from mlflow.entities import Metric

        with _translated():
            for start in range(0, len(points), _METRICS_PER_BATCH):
                part = [
                    Metric(point.name, point.value, point.milliseconds, point.step)
                    for point in points[start : start + _METRICS_PER_BATCH]
                ]
                self._client.log_batch(run_id, metrics=part, synchronous=True)

    def _takes(self, run_id: str, points: Sequence[Point], name: str) -> bool:
        try:
            self._send_points(run_id, [point for point in points if point.name == name])
        except TrackerRefusal:
            return False
        return True


def _names(points: Sequence[Point]) -> list[str]:
    return list(dict.fromkeys(point.name for point in points))


@contextmanager
def _translated() -> Generator[None]:
    """Turn whatever MLflow raises into an outage or a refusal, without credentials."""
    from alembic.util import CommandError
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except MlflowException as error:
        status: Any = error.get_http_status_code()
        if status in _REFUSED and status not in _TEMPORARY:
            raise TrackerRefusal(_one_line(error)) from None
        raise TrackerOutage(_one_line(error)) from None
    except (PermissionError, FileNotFoundError, NotADirectoryError, ImportError) as error:
        raise TrackerRefusal(_one_line(error)) from None
    except (OSError, ValueError, SQLAlchemyError, CommandError) as error:
        raise TrackerOutage(_one_line(error)) from None


def _one_line(error: BaseException) -> str:
    return redact(" ".join(str(error).split()))[:500] or type(error).__name__


@contextmanager
def _one_process(database: Path | None) -> Generator[None]:
    """Hold a lock beside ``database``: two migrations at once break the schema."""
    if database is None:
        yield
        return
    database.parent.mkdir(parents=True, exist_ok=True)
    with (database.parent / f".{database.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
