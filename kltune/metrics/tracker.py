"""Where the mirror of the record lives: a wish and the environment in, an MLflow address out.

Nothing here imports MLflow (that takes seconds), so a wrong address is refused at once.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import re
import sqlite3
import threading
import urllib.parse
import urllib.request
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from kltune.errors import SpecError, StudyError
from kltune.masking import redact as redact

DATABASE = "mlflow.db"
ARTIFACTS = "artifacts"
SIDECAR = "mlflow.json"
"""Beside the record, in the study's and in each trial's folder: what MLflow already has."""

_CHECK_S = 3.0
_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
_ADDRESSES = {
    # Only what has an absolute address of an artifact in it.
    "experiments": ("artifact_location",),
    "runs": ("artifact_uri",),
    "logged_models": ("artifact_location",),
    "model_versions": ("source", "storage_location"),
}


@dataclass(frozen=True, slots=True)
class Tracker:
    """One MLflow tracking address."""

    uri: str
    """May hold credentials: show it only through `redact`."""
    artifact_root: str | None
    """Where a new experiment keeps artifacts; none where the server decides."""
    is_own: bool
    """Whether it is the sqlite database inside the study folder."""

    @property
    def fingerprint(self) -> str:
        """Tells two trackers apart; the same after the study folder was moved; holds no secret."""
        if self.is_own:
            return "own"
        return hashlib.sha256(_without_secrets(self.uri).encode()).hexdigest()[:16]

    @property
    def sqlite_path(self) -> Path | None:
        """The database file of a sqlite tracker."""
        is_sqlite = self.uri.startswith("sqlite:///")
        path = self.uri.removeprefix("sqlite:///").partition("?")[0]
        return Path(path) if is_sqlite and path else None


def _without_secrets(uri: str) -> str:
    """An address as it is however its password is given or changed: not `redact`, whose masks may."""
    uri = re.sub(r"(\w://)[^\s'\"]*@", r"\1***@", uri)
    return re.sub(
        r"([?&][^=&\s]*(?:token|secret|password|pwd|key|sig|signature|credential)[^=&\s]*=)[^&\s'\")]+",
        r"\1***",
        uri,
        flags=re.IGNORECASE,
    )


def resolve_tracker(study_path: Path, wanted: str | None, environ: Mapping[str, str]) -> Tracker:
    """Choose the address: ``wanted``, else MLFLOW_TRACKING_URI, else sqlite in the study folder.

    Raises `SpecError` for a folder, which MLflow no longer takes.
    """
    folder = study_path.absolute()
    root = (folder / ARTIFACTS).as_uri()
    uri = wanted or environ.get("MLFLOW_TRACKING_URI") or ""
    if not uri:
        return Tracker(f"sqlite:///{folder / DATABASE}", root, is_own=True)
    source = "tracking.mlflow" if wanted else "MLFLOW_TRACKING_URI"
    scheme = uri.partition("://")[0].partition("+")[0] if "://" in uri else ""
    if uri.startswith("file:") or (not scheme and not uri.startswith("databricks")):
        raise SpecError(
            f"{source}: MLflow no longer keeps runs in a folder (got {redact(uri)!r}). Either leave "
            "it out (kltune then uses sqlite in the study folder), or give a database or a server, "
            "such as sqlite:////data/mlflow.db or http://localhost:5000"
        )
    _refuse_malformed(source, uri)
    return Tracker(uri, root if scheme in _DATABASES else None, is_own=False)


def _refuse_malformed(source: str, uri: str) -> None:
    try:
        _ = urllib.parse.urlsplit(uri).port
    except ValueError:
        # The parser's own words would show the password.
        raise SpecError(
            f"{source}: not a valid address (got {redact(uri)!r}); a user name or password with "
            "special characters in it must be percent-encoded (/ is %2F, @ is %40)"
        ) from None


def check_experiment(tracker: Tracker, name: str) -> None:
    """Raise `StudyError` where MLflow holds ``name`` as a deleted experiment.

    Takes at most about 3 seconds. A tracker that can't be asked passes: an outage is no reason
    not to start.
    """
    if (path := tracker.sqlite_path) is not None:
        stage = _stage_in_sqlite(path, name)
    elif tracker.uri.startswith(("http://", "https://")):
        stage = _stage_on_server(tracker.uri, name)
    else:
        return
    if stage == "deleted":
        raise StudyError(
            f"MLflow at {redact(tracker.uri)} holds a deleted experiment {name!r}, and a name can't "
            "be used again while it is in the trash. Restore it (`mlflow experiments restore "
            "--experiment-id ID`), remove it for good (`mlflow gc`), or change `name` in the spec"
        )


def has_moved(study_path: Path) -> bool:
    """Whether the study's own MLflow database names the artifacts of another folder; it is only read.

    Raises `sqlite3.Error` where it can't be read.
    """
    path, here = study_path.absolute() / DATABASE, (study_path.absolute() / ARTIFACTS).as_uri()
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=20)) as database:
        return bool(_old_roots(database, here))


def reroot(study_path: Path, database_path: Path | None = None) -> bool:
    """Point the study's own MLflow database at the folder it is in now; return whether it moved.

    MLflow stores absolute artifact addresses, so a copied study would read the original's.
    ``database_path``: a copy of the database to rewrite instead. Raises `StudyError` where it
    can't be rewritten.
    """
    path = database_path or study_path.absolute() / DATABASE
    if not path.exists():
        return False
    new = (study_path.absolute() / ARTIFACTS).as_uri()
    try:
        with closing(sqlite3.connect(path, timeout=20)) as database, database:
            return _rewrite(database, new)
    except sqlite3.Error as error:
        raise StudyError(
            f"{path}: the artifact addresses can't be set to this folder ({error}); "
            "make the file writable and open the study again"
        ) from error


def _rewrite(database: sqlite3.Connection, new: str) -> bool:
    tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}
    if "experiments" not in tables:
        return False
    old_roots = _old_roots(database, new)
    # The default experiment is MLflow's own and empty; its address names the working folder.
    default = "UPDATE experiments SET artifact_location = ? WHERE experiment_id = 0"
    database.execute(f"{default} AND artifact_location <> ?", (f"{new}/0", f"{new}/0"))
    for old in old_roots:
        for table in tables & _ADDRESSES.keys():
            for column in _ADDRESSES[table]:
                database.execute(
                    f"UPDATE {table} SET {column} = ? || substr({column}, ?) "
                    f"WHERE substr({column} || '/', 1, ?) = ?",
                    (new, len(old) + 1, len(old) + 1, f"{old}/"),
                )
    return bool(old_roots)


def _old_roots(database: sqlite3.Connection, new: str) -> list[str]:
    found = database.execute(
        "SELECT DISTINCT artifact_location FROM experiments WHERE experiment_id <> 0"
    )
    # Ours alone: an experiment that a person added may keep its artifacts anywhere.
    mine = re.compile(rf"file:.*/{ARTIFACTS}")
    return [str(row[0]) for row in found if row[0] != new and mine.fullmatch(str(row[0]))]


def _stage_in_sqlite(path: Path, name: str) -> str | None:
    if not path.exists():
        return None
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            row = database.execute(
                "SELECT lifecycle_stage FROM experiments WHERE name = ?", (name,)
            ).fetchone()
    except sqlite3.Error:
        return None
    return None if row is None else str(row[0])


def _stage_on_server(uri: str, name: str) -> str | None:
    parts = urllib.parse.urlsplit(uri)
    host = parts.netloc.rpartition("@")[2]
    query = urllib.parse.urlencode({"experiment_name": name})
    path = f"{parts.path.rstrip('/')}/api/2.0/mlflow/experiments/get-by-name"
    request = urllib.request.Request(
        urllib.parse.urlunsplit((parts.scheme, host, path, query, "")), headers=_login(parts)
    )
    found: list[str] = []
    asking = threading.Thread(target=_read_stage, args=(request, found), daemon=True)
    asking.start()
    asking.join(
        _CHECK_S
    )  # a timeout of HTTP counts from the last byte, and a name is looked up without one
    return found[0] if found else None


def _read_stage(request: urllib.request.Request, found: list[str]) -> None:
    try:
        with urllib.request.urlopen(request, timeout=_CHECK_S) as answer:
            found.append(str(json.load(answer)["experiment"]["lifecycle_stage"]))
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
        return  # URLError and HTTPError are OSErrors


def _login(parts: urllib.parse.SplitResult) -> dict[str, str]:
    if token := os.environ.get("MLFLOW_TRACKING_TOKEN"):
        return {"Authorization": f"Bearer {token}"}
    user = urllib.parse.unquote(parts.username or os.environ.get("MLFLOW_TRACKING_USERNAME", ""))
    word = urllib.parse.unquote(parts.password or os.environ.get("MLFLOW_TRACKING_PASSWORD", ""))
    if not user:
        return {}
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{word}".encode()).decode()}
