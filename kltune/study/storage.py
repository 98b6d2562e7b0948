"""A study folder and a spec in, the Optuna study in its ``study.db`` out.

Whatever is wrong is said before the first write: a database that is damaged or of another
Optuna, and a folder that belongs to another spec, stay as they are to the byte.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
import warnings
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from sqlalchemy import event
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from kltune.errors import StudyError
from kltune.spec.study import StudySpec
from kltune.study.place import DATABASE, check_folder
from kltune.study.same_spec import FREE_TO_CHANGE, differences, kept
from kltune.study.sampler import make_sampler

SCHEMA = 1
"""Version of the attributes that kltune keeps in the Optuna study."""
HEARTBEAT_S = 60
"""Seconds between heartbeats of a running trial."""
BUSY_TIMEOUT_S = 60
"""How long a write waits for another process (a dashboard, a backup) to let go of the file."""

OPTUNA_SCHEMA = "v3.2.0.a"
"""Table revision of the pinned Optuna (a test compares it with Optuna's own)."""

_logger = logging.getLogger(__name__)

_ATTR_SPEC = "kltune.spec"
_ATTR_DIGEST = "kltune.spec_digest"
_ATTR_SCHEMA = "kltune.schema"


@dataclass(frozen=True, slots=True)
class OpenStudy:
    """An Optuna study, its storage, and what was there when it was opened."""

    path: Path
    spec: StudySpec
    optuna_study: optuna.Study
    storage: optuna.storages.RDBStorage
    num_before: int
    """Optuna trials that existed before this session."""

    def close(self) -> None:
        """Let go of the file, and leave it as one file that can be read where nothing can be written."""
        self.storage.remove_session()
        self.storage.engine.dispose()
        _set_journal(self.path / DATABASE, "DELETE")

    def trial_id(self, optuna_number: int) -> int:
        """The storage's own key of a trial."""
        study_id = self.storage.get_study_id_from_name(self.optuna_study.study_name)
        return self.storage.get_trial_id_from_study_id_trial_number(study_id, optuna_number)


def open_study(study_path: Path, spec: StudySpec) -> OpenStudy:
    """Create the study, or go on with the one that is there. Call it while holding the lock.

    Raises `StudyError`, with nothing changed, where the database can't be used or belongs to
    another spec: every difference is named, old and new.
    """
    database = study_path / DATABASE
    is_new = not database.exists() or database.stat().st_size == 0
    if not is_new:
        _check_database(database)
    storage = _storage(database)
    if is_new or not storage.get_all_studies():
        _make_quick(storage, database)
        return _create(study_path, spec, storage)
    study = _load(storage, database, optuna.samplers.RandomSampler())
    num_before = len(study.get_trials(deepcopy=False))
    if _is_blank(study):
        _stamp(study, spec)
    _check_same_spec(study_path, study.user_attrs, spec)
    _make_quick(storage, database)
    study.sampler = make_sampler(spec, num_before)
    return OpenStudy(study_path, spec, study, storage, num_before)


def check_study(study_path: Path, spec: StudySpec) -> None:
    """Raise what `open_study` would raise about an existing study; creates nothing."""
    database = study_path / DATABASE
    check_folder(study_path)
    if database.exists() and database.stat().st_size > 0:
        study = load_study(study_path)
        if not _is_blank(study):
            _check_same_spec(study_path, study.user_attrs, spec)


def load_study(study_path: Path) -> optuna.Study:
    """Open an existing study to read it. Raises `StudyError` where there is none."""
    database = study_path / DATABASE
    if not database.exists():
        raise StudyError(f"{study_path}: no study here ({DATABASE} is absent)")
    _check_database(database)
    return _load(_storage(database), database, optuna.samplers.RandomSampler())


@contextmanager
def reading(study_path: Path) -> Generator[optuna.Study]:
    """`load_study` that lets go of the file afterwards: a process that lives on holds up no one."""
    database = study_path / DATABASE
    if not database.exists():
        raise StudyError(f"{study_path}: no study here ({DATABASE} is absent)")
    _check_database(database)
    storage = _storage(database)
    try:
        yield _load(storage, database, optuna.samplers.RandomSampler())
    finally:
        storage.remove_session()
        storage.engine.dispose()


def storage_to_read(url: str) -> optuna.storages.RDBStorage:
    """Open a storage that a dashboard reads from while a search may be at work in it.

    Between two requests it holds no connection: one would keep a search that ends from putting the
    file in order (`OpenStudy.close`). ``url``: of a database whose tables are there.
    """
    return optuna.storages.RDBStorage(
        url,
        engine_kwargs={"poolclass": NullPool},
        skip_compatibility_check=True,
        skip_table_creation=True,
    )


def _create(study_path: Path, spec: StudySpec, storage: optuna.storages.RDBStorage) -> OpenStudy:
    study = optuna.create_study(
        storage=storage,
        study_name=spec.name,
        direction="maximize",
        sampler=make_sampler(spec, 0),
        pruner=optuna.pruners.NopPruner(),  # kltune decides itself (kltune.study.pruner)
    )
    _stamp(study, spec)
    return OpenStudy(study_path, spec, study, storage, 0)


def _stamp(study: optuna.Study, spec: StudySpec) -> None:
    study.set_user_attr(_ATTR_SPEC, kept(spec))
    study.set_user_attr(_ATTR_DIGEST, digest(spec))
    study.set_user_attr(_ATTR_SCHEMA, SCHEMA)


def _is_blank(study: optuna.Study) -> bool:
    """Whether the process that created the study died before it had written down whose it is."""
    is_stamped = {_ATTR_SPEC, _ATTR_DIGEST, _ATTR_SCHEMA} <= study.user_attrs.keys()
    return not is_stamped and not study.get_trials(deepcopy=False)


def _load(
    storage: optuna.storages.RDBStorage, database: Path, sampler: optuna.samplers.BaseSampler
) -> optuna.Study:
    names = optuna.get_all_study_names(storage)
    if len(names) != 1:
        raise StudyError(
            f"{database}: expected one Optuna study, found {len(names)} ({', '.join(names)})"
        )
    return optuna.load_study(
        study_name=names[0], storage=storage, sampler=sampler, pruner=optuna.pruners.NopPruner()
    )


def _storage(database: Path) -> optuna.storages.RDBStorage:
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # or it writes each step to stderr
    # Optuna fills {placeholders} of an address, so braces of a folder's name are doubled.
    url = f"sqlite:///{database.absolute()}".replace("{", "{{").replace("}", "}}")
    with warnings.catch_warnings():
        # Heartbeats are marked experimental; the pinned version is tested.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        try:
            return optuna.storages.RDBStorage(
                url,
                engine_kwargs={"connect_args": {"timeout": BUSY_TIMEOUT_S}},
                heartbeat_interval=HEARTBEAT_S,
            )
        except (SQLAlchemyError, RuntimeError) as error:
            raise StudyError(f"{database}: Optuna can't open it ({error})") from error


def _make_quick(storage: optuna.storages.RDBStorage, database: Path) -> None:
    """Commit without waiting for the disk: a sweep commits over 1,000 times, else at 13 ms each (measured).

    In write-ahead mode a killed process loses nothing, and a power cut at most the latest
    commits, never the file (sqlite.org/wal.html); readers don't hold up the search.
    """
    storage.remove_session()
    storage.engine.dispose()
    _set_journal(database, "WAL")

    def on_connect(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute("PRAGMA synchronous = NORMAL")

    event.listen(storage.engine, "connect", on_connect)


def _set_journal(database: Path, mode: str) -> None:
    """Switch the file's journal; where someone else is at work in it, it stays as it is."""
    with closing(sqlite3.connect(database, timeout=1, isolation_level=None)) as connection:
        try:
            connection.execute(f"PRAGMA journal_mode = {mode}")
        except sqlite3.OperationalError as error:
            _logger.debug("%s: journal stays as it is (%s)", database, error)


def _check_database(database: Path) -> None:
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
        found = "an unknown revision" if revision is None else revision[0]
        raise StudyError(
            f"{database}: written by another version of Optuna (tables at {found}, this Optuna "
            f"{optuna.__version__} needs {OPTUNA_SCHEMA}). After a copy of the file, upgrade it by\n"
            f"  optuna storage upgrade --storage 'sqlite:///{database}'\n"
            "or install the Optuna that wrote it. Nothing was changed."
        )


def _check_same_spec(study_path: Path, attrs: Mapping[str, Any], spec: StudySpec) -> None:
    schema = attrs.get(_ATTR_SCHEMA)
    if not isinstance(schema, int) or _ATTR_SPEC not in attrs:
        raise StudyError(
            f"{study_path}: its database was not made by kltune; choose another folder by --study"
        )
    if schema != SCHEMA:
        raise StudyError(
            f"{study_path}: made with schema {schema} of kltune, this one reads {SCHEMA}; "
            "upgrade kltune, or run with --fresh, which moves this study aside"
        )
    changed = [f"  {sentence}" for sentence in differences(attrs[_ATTR_SPEC], kept(spec))]
    if changed:
        raise StudyError(
            f"{study_path}: this study belongs to another spec ({len(changed)} difference(s))\n"
            + "\n".join(changed)
            + f"\nOnly {', '.join(FREE_TO_CHANGE)} and guards that stop nothing may change in a study. Use another --study, or "
            "--fresh, which moves the old one aside."
        )


def digest(spec: StudySpec) -> str:
    """A fingerprint of everything that must stay the same within a study."""
    return hashlib.sha256(json.dumps(kept(spec), sort_keys=True).encode()).hexdigest()
