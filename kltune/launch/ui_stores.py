"""A study's databases in, addresses that MLflow and Optuna open for reading only out.

The files are read where they are: a sweep that is at work in them is not held up, and a button of a
dashboard can't delete what it records. A copy is made only where a file can't be read in place.
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

_BUSY_S = 20


@dataclass(frozen=True, slots=True)
class Store:
    """One database to show."""

    url: str
    """For SQLAlchemy; reading only."""
    entry: str
    """Key of the study's own experiment (MLflow) or study (Optuna) in it."""
    is_copy: bool = False
    """Whether it shows the state at the start, from a copy."""


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
        if has_moved(study_path):
            # A sweep would do the same; one that runs has done it already.
            reroot(study_path)
        return Store(_read_only(database), _one(database, *ask))
    except (sqlite3.Error, StudyError):
        copy = _copied(database, scratch)
        reroot(study_path, copy)
        return Store(_read_only(copy), _one_or_refuse(database, copy, *ask), is_copy=True)


def optuna_store(study_path: Path, scratch: Path) -> Store | None:
    """The study's own Optuna database. None where the study has no such database.

    Raises:
        StudyError: the file is damaged, or no Optuna database.
    """
    database = study_path / OPTUNA_DATABASE
    if not database.is_file():
        return None
    ask = ("SELECT study_id FROM studies", ())
    try:
        return Store(_read_only(database), _one(database, *ask))
    except sqlite3.Error:
        copy = _copied(database, scratch)
        return Store(_read_only(copy), _one_or_refuse(database, copy, *ask), is_copy=True)


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


def _one_or_refuse(database: Path, copy: Path, query: str, values: tuple[str, ...]) -> str:
    try:
        return _one(copy, query, values)
    except sqlite3.Error as error:
        raise StudyError(f"{database}: can't be shown ({error})") from error


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
