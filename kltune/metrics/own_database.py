"""An MLflow database file in; out: one that can be used as it is, or the reason why not.

MLflow changes the tables of any database that it opens and finds incomplete, so it is looked at before.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path

from kltune.errors import StudyError
from kltune.metrics.outage import TrackerLoss, TrackerOutage, TrackerRefusal
from kltune.metrics.patience import Patience
from kltune.metrics.tracker import DATABASE, reroot

_LOOK_S = 20.0
"""How long to wait for a lock on the file."""
_ANY = "SELECT 'ok' FROM (SELECT count(*) FROM sqlite_master)"


@contextmanager
def one_process(database: Path | None, patience: Patience) -> Generator[None]:
    """Hold a lock beside ``database``: two migrations at once break the schema."""
    if database is None:
        yield
        return
    database.parent.mkdir(parents=True, exist_ok=True)
    with (database.parent / f".{database.name}.lock").open("w") as lock:
        with patience.working():  # the other one makes the tables
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def ready_file(path: Path, wanted: str, make_tables: Callable[[Path], None]) -> None:
    """Make the tables of a new database, all or none; refuse a database with other tables.

    ``wanted``: the schema's version of the installed MLflow. Call it inside `one_process`.
    """
    _refuse_other_schema(path, wanted)
    if path.exists() and path.stat().st_size > 0:
        return
    # A process that is killed while it makes them would leave a database that MLflow refuses.
    scratch = path.with_name(f".{path.name}.{os.getpid()}.new")
    scratch.unlink(missing_ok=True)
    make_tables(scratch)
    scratch.replace(path)


def _refuse_other_schema(path: Path, wanted: str) -> None:
    """Raise `TrackerRefusal` where a database holds something else, or MLflow's tables of another version.

    ``wanted``: the version of the installed MLflow. A file that is absent or empty passes. Raises
    `sqlite3.Error` where it can't be read.
    """
    if not path.exists() or path.stat().st_size == 0:
        return
    with _opened(path) as database:
        tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}
        has_version = "alembic_version" in tables
        rows = database.execute("SELECT version_num FROM alembic_version") if has_version else ()
        found = next((str(row[0]) for row in rows), "none")
    if tables and "experiments" not in tables:
        raise TrackerRefusal(f"{path} is a database, but not one of MLflow; it was left as it is")
    if tables and found != wanted:
        raise TrackerRefusal(
            f"{path} has MLflow's schema {found}, and the installed MLflow needs {wanted}; it was left "
            f"as it is. Copy the file, then run `mlflow db upgrade sqlite:///{path}`; where a newer "
            "MLflow wrote it, install that one"
        )


def prepare_own(study_path: Path, *, is_doubted: bool = False) -> Path | None:
    """Move the study's own database out of the way if it is damaged; the record fills a new one.

    Returns where it was moved to. ``is_doubted``: something in it was found damaged, so it is read through.
    Raises `TrackerOutage` where it can't be read now.
    """
    path = study_path / DATABASE
    try:
        if path.exists():
            _read_through(path, "PRAGMA quick_check(1)" if is_doubted else _ANY)
    except sqlite3.Error as error:
        if not is_damage(error):
            raise TrackerOutage(f"{path}: {error}") from error
    else:
        return None
    aside = path.with_name(f"{path.name}.broken-{int(time.time())}")
    path.rename(aside)
    for suffix in (
        "-journal",
        "-wal",
        "-shm",
    ):  # left there, they would be played into the new file
        if (beside := path.with_name(path.name + suffix)).exists():
            beside.rename(aside.with_name(aside.name + suffix))
    return aside


def point_here(study_path: Path) -> None:
    """Make the study's own database name the artifacts of the folder that it is in now.

    Raises `TrackerOutage` where it is locked or can't be written, `TrackerLoss` where it is damaged.
    """
    try:
        reroot(study_path)
    except StudyError as error:
        kind = TrackerLoss if is_damage(error.__cause__) else TrackerOutage
        raise kind(str(error)) from error


def is_damage(error: BaseException | None) -> bool:
    """Whether the file itself is broken, other than locked, read-only or without space."""
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(
        error, sqlite3.OperationalError | sqlite3.ProgrammingError | sqlite3.IntegrityError
    )


def _read_through(path: Path, question: str) -> None:
    with _opened(path) as database:
        found = str(database.execute(question).fetchone()[0])
    if found != "ok":
        raise sqlite3.DatabaseError(found)


def _opened(path: Path) -> closing[sqlite3.Connection]:
    """Open a database to look at it. Where a killed process left a journal, only a writer can undo its half."""
    has_journal = path.with_name(f"{path.name}-journal").exists()
    uri = f"{path.absolute().as_uri()}?mode={'rw' if has_journal else 'ro'}"
    return closing(sqlite3.connect(uri, uri=True, timeout=_LOOK_S))
