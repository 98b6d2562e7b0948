"""A study on a database server in, the folder that holds its record out: noted there when the study is set up."""

from __future__ import annotations

from pathlib import Path

import optuna

from kltune.errors import StudyError
from kltune.study import server
from kltune.study.address import Address
from kltune.study.storage import OpenStudy

_ATTR_FOLDER = "kltune.folder"


def note_folder(opened: OpenStudy) -> None:
    """Note where the study lies, as this machine sees it; nothing for one whose database is in its folder."""
    folder = str(opened.path.resolve())
    if opened.address.is_server and opened.optuna_study.user_attrs.get(_ATTR_FOLDER) != folder:
        opened.optuna_study.set_user_attr(_ATTR_FOLDER, folder)


def folder_of(address: Address) -> Path | None:
    """The noted folder; None where there is none.

    Raises:
        StudyError: the database holds no such study.
        EnvironmentMissingError: the server can't be reached, or its driver is missing.
    """
    server.check_reachable(address)
    nothing = StudyError(f"{address.shown} holds no study {address.name!r}")
    if not server.has_tables(address):
        raise nothing
    storage = server.connect(address)
    try:
        study = optuna.load_study(study_name=address.name, storage=storage)
        noted = study.user_attrs.get(_ATTR_FOLDER)
    except KeyError as error:
        raise nothing from error
    finally:
        storage.remove_session()
        storage.engine.dispose()
    return Path(noted) if isinstance(noted, str) else None
