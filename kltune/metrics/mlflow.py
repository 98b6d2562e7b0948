"""The only module that speaks to MLflow: explicit run ids in, one request each out.

MLflow is imported when a `Store` is opened (2 to 4 s), so open it off the main thread. No fluent call, no active
run, no global tracking address. Every failure is one of three: `TrackerOutage` (try again later), `TrackerRefusal`
(trying again won't help) or its kind `TrackerLoss` (what was there is gone: begin anew).
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import sqlite3
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kltune.metrics.meaning import answered, failed
from kltune.metrics.outage import TrackerLoss, TrackerRefusal
from kltune.metrics.own_database import one_process, ready_file
from kltune.metrics.patience import ANSWER_S, UPLOAD_S, Patience
from kltune.metrics.payload import DatasetFacts, Point
from kltune.metrics.tracker import Tracker

if TYPE_CHECKING:
    from mlflow.tracking.client import MlflowClient

T = TypeVar("T")

_DEFAULTS: Final = {
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
_FORCED: Final = {
    # MLflow prints the address, credentials included, to stdout, which is for results.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
METRICS_PER_BATCH: Final = 1000
"""MLflow takes no more in a request."""
_PARAMS_PER_BATCH = 100
_DIGEST_CHARS = 36
_SYSTEM_INTERVAL_S = 10


class Store:
    """An open connection to one tracker."""

    def __init__(self, client: MlflowClient, tracker: Tracker, patience: Patience) -> None:
        """Use `open`, which also makes the tables of a new database."""
        self._client = client
        self._tracker = tracker
        self._patience = patience

    @classmethod
    def open(cls, tracker: Tracker, patience: Patience | None = None) -> Store:
        """Import MLflow and connect; creates the schema of a new database, one process at a time.

        Every answer is waited for within bounds where the tracker is not a file on this machine.
        """
        path = tracker.sqlite_path
        patience = patience or Patience(is_bounded=path is None)
        with patience.working():
            load()
        with _translated(), one_process(path, patience):
            if path is not None:
                ready_file(path, _schema(), patience.while_working(_make_tables))
            connect = _connected if path is None else patience.while_working(_connected)
            client = patience.ask(partial(connect, tracker.uri), UPLOAD_S)
        return cls(client, tracker, patience)

    def let_go(self) -> None:
        """Close what is open of a database whose file was moved away."""
        engine = getattr(getattr(self._client._tracking_client, "store", None), "engine", None)  # pyright: ignore[reportPrivateUsage]
        if engine is not None:
            engine.dispose()

    def experiment(self, name: str) -> str:
        """Find or create an experiment; return its id."""
        found = self._ask(self._client.get_experiment_by_name, name)
        if found is None:
            try:
                root = self._tracker.artifact_root
                return self._ask(self._client.create_experiment, name, root)
            except TrackerRefusal:  # another process was first
                found = self._ask(self._client.get_experiment_by_name, name)
        if found is None or found.lifecycle_stage != "active":
            raise TrackerRefusal(
                f"experiment {name!r} is deleted; restore it (`mlflow experiments restore`)"
            )
        return found.experiment_id

    def is_in_trash(self, experiment_id: str) -> bool:
        """Whether an experiment is deleted: it can be restored, but takes nothing meanwhile."""
        try:
            found = self._ask(self._client.get_experiment, experiment_id)
        except TrackerLoss:
            raise
        except TrackerRefusal:
            return False
        return found.lifecycle_stage != "active"

    def create_run(
        self, experiment_id: str, name: str, tags: Mapping[str, str], start_ms: int
    ) -> str:
        """Create a run that began at ``start_ms`` (Unix time); return its id."""
        run = self._ask(self._client.create_run, experiment_id, start_ms, dict(tags), name)
        return run.info.run_id

    def find_runs(self, experiment_id: str, tag: str, value: str) -> list[str]:
        """Look for runs by one tag: a create that failed may have arrived, and more than once."""
        wanted = f"tags.`{tag}` = '{value}'"
        found = self._ask(self._client.search_runs, [experiment_id], wanted)
        return [run.info.run_id for run in found]

    def discard(self, run_id: str) -> None:
        """Put a run into MLflow's trash."""
        self._ask(self._client.delete_run, run_id)

    def params_of(self, run_id: str) -> dict[str, str] | None:
        """Return the params of a run that can be written to; none where there is no such run."""
        try:
            run = self._ask(self._client.get_run, run_id)
        except TrackerLoss:
            return None
        return dict(run.data.params) if run.info.lifecycle_stage == "active" else None

    def log_points(self, run_id: str, points: Sequence[Point]) -> list[str]:
        """Send metrics, up to 1000 a request; return the names that were refused.

        Where a batch is refused, its metrics are sent by name, so one bad name costs only itself.
        """
        try:
            self._send_points(run_id, points)
        except TrackerLoss:
            raise
        except TrackerRefusal:
            return [name for name in _names(points) if not self._takes(run_id, points, name)]
        return []

    def log_params(self, run_id: str, params: Mapping[str, str]) -> None:
        """Send params, which MLflow lets nobody change later."""
        from mlflow.entities import Param

        entities = [Param(key, value) for key, value in params.items()]
        for start in range(0, len(entities), _PARAMS_PER_BATCH):
            self._log_batch(run_id, params=entities[start : start + _PARAMS_PER_BATCH])

    def set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        """Set tags, replacing those of the same name."""
        from mlflow.entities import RunTag

        self._log_batch(run_id, tags=[RunTag(key, value) for key, value in tags.items()])

    def log_text(self, run_id: str, text: str, artifact: str) -> None:
        """Write ``text`` as the artifact of that relative path."""
        self._ask(self._client.log_text, run_id, text, artifact, limit_s=UPLOAD_S)

    def log_file(self, run_id: str, path: Path) -> None:
        """Copy a file into the top of the run's artifacts."""
        self._ask(self._client.log_artifact, run_id, str(path), limit_s=UPLOAD_S)

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
        self._ask(self._client.log_inputs, run_id, inputs)

    def set_running(self, run_id: str) -> None:
        """Mark a run as running (again)."""
        self._ask(self._client.update_run, run_id, "RUNNING")

    def terminate(self, run_id: str, status: str, end_ms: int) -> None:
        """End a run as FINISHED, KILLED or FAILED at ``end_ms`` (Unix time)."""
        self._ask(self._client.set_terminated, run_id, status, end_ms)

    def watch_system(self, run_id: str) -> Callable[[], None]:
        """Start MLflow's own log of CPU, memory, disk and GPU on a run; return how to stop it."""
        from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

        def start() -> Callable[[], None]:
            monitor = SystemMetricsMonitor(
                run_id, _SYSTEM_INTERVAL_S, resume_logging=True, tracking_uri=self._tracker.uri
            )
            monitor.start()
            return monitor.finish

        finish = self._ask(start)
        return partial(self._ask, finish)

    def _send_points(self, run_id: str, points: Sequence[Point]) -> None:
        from mlflow.entities import Metric

        for start in range(0, len(points), METRICS_PER_BATCH):
            part = [
                Metric(point.name, point.value, point.milliseconds, point.step)
                for point in points[start : start + METRICS_PER_BATCH]
            ]
            self._log_batch(run_id, metrics=part)

    def _takes(self, run_id: str, points: Sequence[Point], name: str) -> bool:
        try:
            self._send_points(run_id, [point for point in points if point.name == name])
        except TrackerLoss:
            raise
        except TrackerRefusal:
            return False
        return True

    def _log_batch(self, run_id: str, **what: Sequence[Any]) -> None:
        self._ask(partial(self._client.log_batch, run_id, synchronous=True, **what))

    def _ask(self, question: Callable[..., T], *args: Any, limit_s: float = ANSWER_S) -> T:
        with _translated():
            return self._patience.ask(partial(question, *args), limit_s)


def load() -> None:
    """Import MLflow, which takes seconds, with its telemetry off and its repeats of requests too."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    os.environ.update(_FORCED)
    atexit.unregister(gc.freeze)  # once is enough
    atexit.register(gc.freeze)  # at its end Python looks for garbage in all this: 0.4 s of CPU
    importlib.import_module("mlflow.tracking.client")


def _connected(uri: str) -> MlflowClient:
    from mlflow.tracking.client import MlflowClient

    client = MlflowClient(uri, registry_uri=uri)
    client.search_experiments(max_results=1)
    return client


def _make_tables(path: Path) -> None:
    from mlflow.store.db import utils

    engine = utils.create_sqlalchemy_engine_with_retry(f"sqlite:///{path.absolute()}")
    try:
        utils._initialize_tables(engine)  # pyright: ignore[reportPrivateUsage]
    finally:
        engine.dispose()


def _schema() -> str:
    from mlflow.store.db import utils

    return utils._get_latest_schema_revision()  # pyright: ignore[reportPrivateUsage]


def _names(points: Sequence[Point]) -> list[str]:
    return list(dict.fromkeys(point.name for point in points))


@contextmanager
def _translated() -> Generator[None]:
    """Turn whatever MLflow raises into an outage, a refusal or a loss, without credentials."""
    from alembic.util import CommandError
    from mlflow.exceptions import MlflowException, RestException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except MlflowException as error:
        is_mlflows_own = isinstance(error, RestException)
        status = error.get_http_status_code()
        raise answered(error, status, error.error_code, is_mlflows_own=is_mlflows_own) from None
    except (
        OSError,
        ValueError,
        ImportError,
        SQLAlchemyError,
        CommandError,
        sqlite3.Error,
    ) as error:
        raise failed(error) from None
