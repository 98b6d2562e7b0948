"""A study's own sqlite file in, Optuna's storage on it out; a file that can't be used is left as it is."""

from __future__ import annotations

import logging
import sqlite3
import warnings
from contextlib import closing
from pathlib import Path
from typing import Final

import optuna
from sqlalchemy import event
from sqlalchemy.exc import SQLAlchemyError

from kltune.errors import StudyError
from kltune.study.address import Address
from kltune.study.patient import Patience, PatientStorage

BUSY_TIMEOUT_S: Final = 60
"""How long a write waits for another process (a dashboard, a backup) to let go of the file."""

HEARTBEAT_S: Final = 60
"""Seconds between heartbeats of a running trial."""

OPTUNA_SCHEMA: Final = "v3.2.0.a"
"""Table revision of the pinned Optuna (a test compares it with Optuna's own)."""

_logger = logging.getLogger(__name__)


def quieten() -> None:
    """Keep Optuna from writing each step to stderr, and whole statements of what kltune repeats."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    logging.getLogger("optuna.storages._rdb.storage").setLevel(logging.ERROR)


def open_file(database: Path, address: Address, *, is_made: bool = False) -> PatientStorage:
    """Optuna's storage on the file, which is made where it is absent. Raises `StudyError` where it can't be opened.

    ``is_made``: its tables are there, and of this Optuna (`check_database`).
    """
    quieten()
    # Optuna fills {placeholders} of an address, so braces of a folder's name are doubled.
    url = f"sqlite:///{database.absolute()}".replace("{", "{{").replace("}", "}}")
    with warnings.catch_warnings():
        # Heartbeats are marked experimental; the pinned version is tested.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        try:
            storage = PatientStorage(
                url,
                engine_kwargs={"connect_args": {"timeout": BUSY_TIMEOUT_S}},
                heartbeat_interval=HEARTBEAT_S,
                skip_compatibility_check=is_made,
                skip_table_creation=is_made,
            )
        except (SQLAlchemyError, RuntimeError) as error:
            raise StudyError(f"{database}: Optuna can't open it ({error})") from error
    storage.patience = Patience(address)
    storage.patience.folder = database.parent
    return storage


def only_name(storage: PatientStorage, database: Path) -> str:
    """Name of the one study in the file. Raises `StudyError` where it holds another number of them."""
    names = [study.study_name for study in storage.get_all_studies()]
    if len(names) != 1:
        raise StudyError(
            f"{database}: expected one Optuna study, found {len(names)} ({', '.join(names)})"
        )
    return names[0]


def make_quick(storage: optuna.storages.RDBStorage, database: Path) -> None:
    """Commit without waiting for the disk: a sweep commits over 1,000 times, else at 13 ms each (measured).

    In write-ahead mode a killed process loses nothing, and a power cut at most the latest
    commits, never the file (sqlite.org/wal.html); readers don't hold up the search. Call it in the turn.
    """
    storage.remove_session()
    storage.engine.dispose()
    set_journal(database, "WAL")

    def on_connect(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute("PRAGMA synchronous = NORMAL")

    event.listen(storage.engine, "connect", on_connect)
    # An open connection is what keeps another member that ends from switching the journal back.
    with storage.engine.connect() as connection:
        connection.exec_driver_sql("SELECT COUNT(*) FROM studies")


def set_journal(database: Path, mode: str) -> None:
    """Switch the file's journal; where someone else is at work in it, it stays as it is."""
    with closing(sqlite3.connect(database, timeout=1, isolation_level=None)) as connection:
        try:
            connection.execute(f"PRAGMA journal_mode = {mode}")
        except sqlite3.OperationalError as error:
            _logger.debug("%s: journal stays as it is (%s)", database, error)


def check_database(database: Path) -> None:
    """Refuse what Optuna would alter or stumble over; opens the file for reading only."""
    try:
        with closing(
            sqlite3.connect(
                f"{database.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_TIMEOUT_S
            )
        ) as connection:
            tables = {
                row[0]
                for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            }
            revision = (
                connection.execute("SELECT version_num FROM alembic_version").fetchone()
                if "alembic_version" in tables
                else None
            )
    except sqlite3.DatabaseError as error:
        raise StudyError(
            f"{database}: not readable as a study's database ({error}); restore it from a copy, or "
            "run again with --fresh, which moves this study aside"
        ) from error
    if not {"studies", "trials", "version_info"} <= tables:
        raise StudyError(
            f"{database}: not an Optuna database (found {len(tables)} tables); run again with "
            "--fresh, which moves this folder aside"
        )
    if revision is None or revision[0] != OPTUNA_SCHEMA:
        found = None if revision is None else str(revision[0])
        raise StudyError(
            other_schema(str(database), f"sqlite:///{database}", found, "a copy of the file")
        )


def other_schema(place: str, url: str, found: str | None, backup: str) -> str:
    """What a person is told of tables that another Optuna made."""
    tables = "an unknown revision" if found is None else found
    return (
        f"{place}: written by another version of Optuna (tables at {tables}, this Optuna "
        f"{optuna.__version__} needs {OPTUNA_SCHEMA}). After {backup}, upgrade it by\n"
        f"  optuna storage upgrade --storage '{url}'\n"
        "or install the Optuna that wrote it. Nothing was changed."
    )
