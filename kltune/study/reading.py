"""A study folder in, the Optuna study that is kept for it out, to be read: nothing is made or changed."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import optuna
from sqlalchemy.pool import NullPool

from kltune.errors import StudyError
from kltune.study import server
from kltune.study.address import Address, read_address, with_ambient_secret
from kltune.study.database import check_database, only_name, open_file
from kltune.study.patient import PatientStorage
from kltune.study.place import DATABASE
from kltune.study.stamp import ATTR_FOLDER


def load_study(study_path: Path) -> optuna.Study:
    """Open an existing study to read it. Raises what `reading` raises."""
    storage, name = _to_read(study_path)
    return load(storage, name)


@contextmanager
def reading(study_path: Path) -> Generator[optuna.Study]:
    """`load_study` that lets go of the database afterwards: a process that lives on holds up no one.

    Raises:
        StudyError: there is no study, or none that this Optuna can read.
        EnvironmentMissingError: the study's database server can't be reached.
    """
    storage, name = _to_read(study_path)
    try:
        yield load(storage, name)
    finally:
        storage.remove_session()
        storage.engine.dispose()


def storage_to_read(url: str) -> optuna.storages.RDBStorage:
    """Open a storage that a dashboard reads from while a search may be at work in it.

    Between two requests it holds no connection: one would keep a search that ends from putting the
    file in order (`OpenStudy.close`). ``url``: of a database whose tables are there; of a server without its
    password, which the environment has.
    """
    if not url.startswith("sqlite:"):
        return server.read_only_storage(with_ambient_secret(url, os.environ))
    return optuna.storages.RDBStorage(
        url,
        engine_kwargs={"poolclass": NullPool},
        skip_compatibility_check=True,
        skip_table_creation=True,
    )


def _to_read(study_path: Path) -> tuple[PatientStorage, str]:
    address = read_address(study_path, os.environ)
    if address is not None and address.is_server:
        storage = server.connect(address)
        if not has_study(storage, address.name):
            storage.engine.dispose()
            raise StudyError(f"{study_path}: {address.shown} holds no study {address.name!r}")
        return storage, address.name
    database = study_path / DATABASE
    if not database.exists():
        raise StudyError(f"{study_path}: no study here ({DATABASE} is absent)")
    check_database(database)
    storage = open_file(database, address or Address(None, ""), is_made=True)
    return storage, only_name(storage, database)


def place_on_server(study_path: Path) -> tuple[str, str]:
    """The server's address without its password, and its own key of the study; of a folder with a storage.json.

    Raises what `reading` raises.
    """
    address = read_address(study_path, os.environ)
    with reading(study_path) as study:
        return ("" if address is None else address.shown), str(study._study_id)  # pyright: ignore[reportPrivateUsage]


def folder_of(address: Address) -> Path | None:
    """The folder in which the study on a server was begun; none where nobody wrote that down.

    Raises `StudyError` where the server holds no such study, `EnvironmentMissingError` where it can't be asked.
    """
    storage = server.connect(address)
    try:
        if not has_study(storage, address.name):
            raise StudyError(f"{address.shown}: holds no study {address.name!r}")
        folder = load(storage, address.name).user_attrs.get(ATTR_FOLDER)
    finally:
        storage.remove_session()
        storage.engine.dispose()
    return Path(folder) if isinstance(folder, str) else None


def has_study(storage: PatientStorage, name: str) -> bool:
    """Whether the database holds a study of this name."""
    try:
        storage.get_study_id_from_name(name)
    except KeyError:
        return False
    return True


def load(storage: PatientStorage, name: str) -> optuna.Study:
    """The study, with a sampler that proposes at random: whoever asks sets the spec's."""
    return optuna.load_study(
        study_name=name,
        storage=storage,
        sampler=optuna.samplers.RandomSampler(),
        pruner=optuna.pruners.NopPruner(),
    )
