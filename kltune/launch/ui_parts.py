"""A study and a port in, what ``kltune ui`` shows of its stores out: the server to start, its address, or why there is none."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kltune.errors import KltuneError
from kltune.launch.ui_children import Command
from kltune.launch.ui_loopback import LOOPBACK
from kltune.launch.ui_optuna import STORAGE
from kltune.launch.ui_stores import Store, mlflow_store, optuna_store
from kltune.metrics.jsonl import read_json
from kltune.metrics.tracker import ARTIFACTS, SIDECAR, redact, resolve_tracker
from kltune.spec.study import StudySpec

MLFLOW, OPTUNA = "MLflow", "Optuna"
INSTALL = "pip install 'kltune[ui]'"
_HOSTS = "localhost,localhost:*,127.0.0.1,127.0.0.1:*,[::1],[::1]:*"
_READ_ONLY = "read-only"
_LARGE_BYTES = 50_000_000
"""From here on the size of a copy is told."""


@dataclass(frozen=True, slots=True)
class Part:
    """One line of what is shown."""

    name: str
    address: str | None = None
    note: str = ""
    command: Command | None = None
    """None: nothing is to be started."""
    is_due: bool = False
    """Whether it may come: a sweep that begins makes its databases as it goes."""


def mlflow_part(study_path: Path, scratch: Path, spec: StudySpec, port: int) -> Part:
    """MLflow's page on the study's own database; of another tracker, its address alone."""
    try:
        elsewhere = _elsewhere(study_path, spec)
        if elsewhere is not None:
            return Part(MLFLOW, redact(elsewhere), "the study's tracker; not started here")
        copy_folder = scratch / "mlflow.copy"
        copy_folder.mkdir(exist_ok=True)
        store = mlflow_store(study_path, copy_folder, spec.name)
    except KltuneError as error:
        return Part(MLFLOW, note=f"not shown: {redact(str(error))}")
    if store is None or not store.entry:
        # Its tables are there before the experiment is: MLflow's server would stumble over half of them.
        is_due = spec.tracking.enabled
        return Part(
            MLFLOW,
            note=f"not shown: no runs in the study's mlflow.db{' yet' * is_due}",
            is_due=is_due,
        )
    root = (study_path.absolute() / ARTIFACTS).as_uri()
    arguments = [
        *("-m", "mlflow", "server", "--host", LOOPBACK, "--port", str(port), "--workers", "1"),
        *("--backend-store-uri", store.url, "--registry-store-uri", store.url),
        *("--default-artifact-root", root, "--no-serve-artifacts"),
        *("--allowed-hosts", _HOSTS, "--x-frame-options", "DENY"),
        *("--cors-allowed-origins", f"http://{LOOPBACK}:{port},http://localhost:{port}"),
    ]
    command = Command(MLFLOW, arguments, port, "/health", _mlflow_environment(os.environ))
    page = f"#/experiments/{store.entry}/runs"
    return Part(MLFLOW, f"http://{LOOPBACK}:{port}/{page}", _note(store), command)


def optuna_part(study_path: Path, scratch: Path, port: int) -> Part:
    """Optuna's dashboard on the study's own database."""
    if importlib.util.find_spec("optuna_dashboard") is None:
        return Part(OPTUNA, note=f"not shown: optuna-dashboard is not installed; {INSTALL}")
    copy_folder = scratch / "optuna.copy"
    copy_folder.mkdir(exist_ok=True)
    try:
        store = optuna_store(study_path, copy_folder)
    except KltuneError as error:
        return Part(OPTUNA, note=f"not shown: {error}")
    if store is None or not store.entry:
        return Part(OPTUNA, note="not shown: no trials in the study's study.db yet", is_due=True)
    arguments = ["-m", "kltune.launch.ui_optuna", str(port)]
    command = Command(OPTUNA, arguments, port, "/api/meta", {**os.environ, STORAGE: store.url})
    page = f"dashboard/studies/{store.entry}"
    return Part(OPTUNA, f"http://{LOOPBACK}:{port}/{page}", _note(store), command)


def _note(store: Store) -> str:
    if store.copied_because is None:
        return _READ_ONLY
    is_large = store.copy_bytes >= _LARGE_BYTES
    size = f" of {store.copy_bytes / 1e6:.0f} MB" if is_large else ""
    return f"{_READ_ONLY}, a copy{size} made at the start: {store.copied_because}"


def _elsewhere(study_path: Path, spec: StudySpec) -> str | None:
    """Address of the study's tracker where that is not its own database; it may hold credentials.

    What the study wrote down counts: the environment may have changed since.
    """
    sidecar = study_path / SIDECAR
    is_own = sidecar.is_file() and read_json(sidecar).get("tracker") == "own"
    if is_own or (study_path / "mlflow.db").is_file():
        return None
    tracker = resolve_tracker(study_path, spec.tracking.mlflow, os.environ)
    return tracker.uri if spec.tracking.enabled and not tracker.is_own else None


def _mlflow_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Ours, without what would steer MLflow's server elsewhere: each of its flags reads a variable."""
    kept = {
        name: value
        for name, value in environ.items()
        if not name.startswith(("MLFLOW_", "_MLFLOW"))
    }
    return {
        **kept,
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        # Jobs would write in the database, and start more processes.
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_ENABLE_AI_GATEWAY": "false",
        # MLflow's assistant runs commands as this user, for whoever reaches the port, which others
        # who are logged in here can: in a container of its own, then, or not at all.
        "MLFLOW_ENABLE_ASSISTANT_SANDBOX": "true",
    }
