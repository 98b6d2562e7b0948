"""A study's databases in, addresses that MLflow and Optuna open for reading only out.

The files are read where they are: a sweep that is at work in them is not held up, and a button of a
dashboard can't delete what it records. A copy is made only where a file can't be read in place, or where
the study was moved: MLflow's file names its artifacts by the old folder, and is not ours to rewrite.
"""

from __future__ import annotations

import shutil
import sqlite3
import urllib.parse
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from kltune.errors import StudyError
from kltune.metrics.tracker import DATABASE as MLFLOW_DATABASE
from kltune.metrics.tracker import has_moved, reroot
from kltune.study.place import DATABASE as OPTUNA_DATABASE
from kltune.study.place import STORAGE

_BUSY_S = 20
_UNREADABLE = "the study's own file can't be read in place"
_MOVED = "the study was moved, and its own file, which names the old folder, is left as it is"


@dataclass(frozen=True, slots=True)
class Store:
    """One database to show."""

    url: str
    """For SQLAlchemy; reading only."""
    entry: str
    """Key of the study's own experiment (MLflow) or study (Optuna) in it."""
    copied_because: str | None = None
    """Why it shows the state at the start, from a copy; None where it is read in place."""
    copy_bytes: int = 0
    """Size of the copy."""


def mlflow_store(study_path: Path, scratch: Path, name: str) -> Store | None:
    """The study's own MLflow database, its artifacts found in the folder as it lies now.

    ``scratch``: folder for a copy; ``name``: the experiment's. None where the study has no such database.

    Raises:
        StudyError: the file is damaged, or no MLflow database.
    """
    database = study_path / MLFLOW_DATABASE
    if not database.is_file():
        return None
    ask = ("SELECT experiment_id FROM experiments WHERE name = ?", (name,))
    try:
        # A sweep that runs has set its file right already, so nothing that grows is copied.
        if not has_moved(study_path):
            return Store(_read_only(database), _one(database, *ask))
        why = _MOVED
    except sqlite3.Error:
        why = _UNREADABLE
    copy = _copied(database, scratch)
    reroot(study_path, copy)
    return _of_copy(database, copy, ask, why)


def optuna_store(study_path: Path, scratch: Path) -> Store | None:
    """The study's own Optuna database, or that of its server. None where the study has no such database.

    Raises:
        StudyError: the file is damaged, or no Optuna database.
        EnvironmentMissingError: the server can't be reached.
    """
    if (study_path / STORAGE).is_file():
        from kltune.study.reading import place_on_server

        return Store(*place_on_server(study_path))
    database = study_path / OPTUNA_DATABASE
    if not database.is_file():
        return None
    ask: tuple[str, tuple[str, ...]] = ("SELECT study_id FROM studies", ())
    try:
        return Store(_read_only(database), _one(database, *ask))
    except sqlite3.Error:
        return _of_copy(database, _copied(database, scratch), ask, _UNREADABLE)


def _read_only(database: Path) -> str:
    """The path is quoted twice: once for sqlite's own URI, once for SQLAlchemy, which undoes its share."""
    path = urllib.parse.quote(_quoted(database))
    return f"sqlite:///file:{path}?mode=ro&timeout={_BUSY_S}&uri=true"


def _quoted(database: Path) -> str:
    return database.absolute().as_uri().removeprefix("file://")


def _one(database: Path, query: str, values: tuple[str, ...]) -> str:
    """The first value that is found, as text; empty where there is none."""
    address = f"file:{_quoted(database)}?mode=ro"
    with closing(sqlite3.connect(address, uri=True, timeout=_BUSY_S)) as connection:
        row = connection.execute(query, values).fetchone()
    return "" if row is None else str(row[0])


def _of_copy(database: Path, copy: Path, ask: tuple[str, tuple[str, ...]], why: str) -> Store:
    try:
        entry = _one(copy, *ask)
    except sqlite3.Error as error:
        raise StudyError(f"{database}: can't be shown ({error})") from error
    return Store(_read_only(copy), entry, why, copy.stat().st_size)


def _copied(database: Path, scratch: Path) -> Path:
    """Copy the database with its journal, so that what is half written is rolled back in the copy."""
    copy = scratch / database.name
    try:
        for ending in ("", "-wal", "-journal"):
            source = database.with_name(database.name + ending)
            if source.is_file():
                shutil.copyfile(source, copy.with_name(copy.name + ending))
        # Opened for writing once: that is when sqlite puts it in order, and then it is one file.
        with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE").fetchone()
    except (OSError, sqlite3.Error) as error:
        raise StudyError(f"{database}: can't be read ({error})") from error
    return copy
