"""An MLflow address in, the whole history of its runs out: explicit run ids, no active run, nothing written.

Like kltune.metrics.mlflow it imports MLflow when it is called (2 to 4 s).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kltune.errors import EnvironmentMissingError, StudyError
from kltune.metrics.reach import REACH_S, listens, place_of
from kltune.metrics.tracker import Tracker, redact

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking.client import MlflowClient

MOST_RUNS: Final = 200
"""More are not read at once: a person has to choose."""
_TABLES: Final = frozenset({"experiments", "runs", "metrics"})
_ID_CHARS: Final = 32
_DEFAULTS: Final = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


@dataclass(frozen=True, slots=True)
class RunHistory:
    """All that a tracker has of one run."""

    run_id: str
    name: str
    experiment: str
    """Its name."""
    params: Mapping[str, str]
    points: Sequence[tuple[int, str, float]]
    """(step, metric, value), in the order in which they were logged; values may be non-finite."""


def read_histories(uri: str, wanted: str | None) -> list[RunHistory]:
    """Read the runs of a tracker that hold metrics; the database or server is only read.

    ``wanted``: a run's id or name, or an experiment's name or id; none: every run there is.

    Raises:
        StudyError: There is no such tracker or run, or there are too many to choose from.
        EnvironmentMissingError: The server can't be reached.
    """
    _refuse_other_databases(uri)
    _refuse_silent(uri)
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    from mlflow.tracking.client import MlflowClient

    with _translated(uri):
        client = MlflowClient(uri, registry_uri=uri)
        experiments = {e.experiment_id: str(e.name) for e in client.search_experiments()}
        runs = _chosen(client, experiments, wanted, uri)
        histories = [_history(client, run, experiments) for run in runs]
    found = [history for history in histories if history.points]
    if not found:
        raise StudyError(f"{redact(uri)}: no run there has a metric")
    return found


def _chosen(
    client: MlflowClient, experiments: Mapping[str, str], wanted: str | None, uri: str
) -> list[Run]:
    if wanted is not None and len(wanted) == _ID_CHARS and wanted.isalnum():
        return [client.get_run(wanted)]
    ids = [i for i, name in experiments.items() if wanted in (None, i, name)]
    runs: list[Run] = _all_runs(client, ids or list(experiments))
    if wanted is not None and not ids:
        runs = [run for run in runs if run.info.run_name == wanted]
    with_metrics = [run for run in runs if run.data.metrics]
    if not runs:
        there = "; ".join(experiments.values())
        raise StudyError(
            f"{redact(uri)}: no run or experiment {wanted!r}; the experiments are: {there or 'none'}"
        )
    if len(with_metrics) > MOST_RUNS:
        raise StudyError(
            f"{redact(uri)}: {len(with_metrics)} runs are there, more than {MOST_RUNS}; choose one, or an "
            "experiment, by --run"
        )
    # Oldest first: trials in the order of their numbers.
    return sorted(with_metrics, key=lambda run: run.info.start_time or 0)


def _all_runs(client: MlflowClient, experiment_ids: Sequence[str]) -> list[Run]:
    runs: list[Run] = []
    token: str | None = None
    while len(runs) <= MOST_RUNS * 5:
        page = client.search_runs(list(experiment_ids), max_results=1000, page_token=token)
        runs += list(page)
        token = page.token
        if not token:
            break
    return runs


def _history(client: MlflowClient, run: Run, experiments: Mapping[str, str]) -> RunHistory:
    run_id = str(run.info.run_id)
    logged: Iterable[tuple[int, int, str, float]] = (
        (point.timestamp, point.step, name, float(point.value))
        for name in run.data.metrics
        for point in client.get_metric_history(run_id, name)
    )
    points = [(step, name, value) for _, step, name, value in sorted(logged, key=lambda p: p[0])]
    experiment_id = str(run.info.experiment_id)
    return RunHistory(
        run_id=run_id,
        name=str(run.info.run_name or ""),
        experiment=experiments.get(experiment_id, experiment_id),
        params=dict(run.data.params),
        points=points,
    )


def _refuse_silent(uri: str) -> None:
    """MLflow itself would ask a database server that is not there for minutes."""
    place = None if uri.startswith(("http://", "https://")) else place_of(uri)
    if place is not None and not listens(*place):
        raise EnvironmentMissingError(
            f"{redact(uri)}: no database server answers there (within {REACH_S:.0f} s)"
        )


def _refuse_other_databases(uri: str) -> None:
    """Look before MLflow does: it makes its tables in any database that it opens."""
    path = Tracker(uri, None, is_own=False).sqlite_path
    if path is None:
        return
    if not path.is_file():
        raise StudyError(f"{path}: no such file (an MLflow database was expected)")
    if not is_mlflow_database(path):
        raise StudyError(
            f"{path}: not an MLflow database (it has no tables experiments, runs, metrics)"
        )


def is_mlflow_database(path: Path) -> bool:
    """Whether a file is a sqlite database with MLflow's tables; it is opened for reading only."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            found = database.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'"
            ).fetchall()
    except sqlite3.Error:
        return False
    return {str(row[0]) for row in found} >= _TABLES


@contextmanager
def _translated(uri: str) -> Generator[None]:
    """Turn whatever MLflow raises into one message, without credentials."""
    from alembic.util import CommandError
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, CommandError, OSError, ValueError) as error:
        words = redact(" ".join(str(error).split()))[:500]
        if uri.startswith(("http://", "https://")) and not _is_refusal(error):
            raise EnvironmentMissingError(
                f"{redact(uri)}: the tracker did not answer ({words})"
            ) from None
        raise StudyError(f"{redact(uri)}: {words}") from None


def _is_refusal(error: Exception) -> bool:
    status = getattr(error, "get_http_status_code", None)
    refused = range(400, 500)
    return callable(status) and status() in refused
