"""A study folder and a spec in, the Optuna study out: in the folder's ``study.db``, or on a database server.

Whatever is wrong is said before the first write: a database that is damaged or of another
Optuna, and a folder that belongs to another spec, stay as they are to the byte.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import optuna

from kltune.spec.study import StudySpec
from kltune.study import server
from kltune.study.address import (
    Address,
    note_address,
    read_home,
    resolve_address,
)
from kltune.study.database import (
    BUSY_TIMEOUT_S,
    HEARTBEAT_S,
    OPTUNA_SCHEMA,
    check_database,
    make_quick,
    only_name,
    open_file,
    set_journal,
)
from kltune.study.distant import refuse_distant
from kltune.study.patient import Patience, PatientStorage
from kltune.study.place import DATABASE, TURN, UNFINISHED, check_folder
from kltune.study.reading import (
    folder_of,
    has_study,
    load,
    load_study,
    reading,
    storage_to_read,
)
from kltune.study.sampler import make_sampler
from kltune.study.stamp import (
    ATTR_FOLDER,
    check_home,
    check_same_spec,
    digest,
    is_blank,
    refuse_without_its_trials,
    stamp,
)
from kltune.study.turn import FileTurn, ServerTurn, Turn

__all__ = [
    "BUSY_TIMEOUT_S",
    "DATABASE",
    "HEARTBEAT_S",
    "OPTUNA_SCHEMA",
    "OpenStudy",
    "check_study",
    "digest",
    "folder_of",
    "load_study",
    "open_study",
    "reading",
    "storage_to_read",
]

T = TypeVar("T")
_logger = logging.getLogger(__name__)


def _is_here(number: int) -> None:
    """All members share one folder."""
    del number


@dataclass(frozen=True, slots=True)
class OpenStudy:
    """An Optuna study, its storage, and what was there when it was opened."""

    path: Path
    spec: StudySpec
    optuna_study: optuna.Study
    storage: PatientStorage
    num_before: int
    """Optuna trials that existed before this session."""
    address: Address
    patience: Patience
    """How long this session waits for a database that is away; ask it to `heed` a stop."""
    whose_turn: Turn
    bring: Callable[[int], object] = _is_here
    """Called before a trial of an earlier attempt goes on: sees to it that its folder is here (kltune.trial.exchange)."""

    def turn(self) -> AbstractContextManager[None]:
        """The sole right to decide what is asked next, over all members.

        On a server the right is lost with its connection; then what is written in it raises
        `TurnLostError`, and the decision must be made again: `decide` does both.
        """
        return self.whose_turn.take()

    def decide(self, decision: Callable[[], T]) -> T:
        """Call ``decision`` within the turn; again, from its beginning, where the database went away meanwhile.

        So it reads all that it decides from, and what it wrote before it was cut off is there to be found.
        Within a turn that is held already it is just called. Raises `RunError` as `Patience.insist` does.
        """
        if self.whose_turn.is_fenced_here:
            return decision()

        def in_turn() -> T:
            with self.turn():
                return decision()

        return self.patience.insist(in_turn, in_turn=True)

    def close(self) -> None:
        """Let go of the database. The last one leaves sqlite's as one file, which can be read where nothing can be written."""
        self.storage.remove_session()
        self.storage.engine.dispose()
        if self.address.is_server:
            return
        # In the turn: one that opens the file at this moment would find the journal switched under it.
        with self.turn():
            set_journal(self.path / DATABASE, "DELETE")

    def trial_id(self, optuna_number: int) -> int:
        """The storage's own key of a trial."""
        study = self.optuna_study
        # By the study's own view of the storage, which remembers it: no statement is sent.
        view = study._storage  # pyright: ignore[reportPrivateUsage]
        study_id = study._study_id  # pyright: ignore[reportPrivateUsage]
        return view.get_trial_id_from_study_id_trial_number(study_id, optuna_number)


def open_study(study_path: Path, spec: StudySpec, address: Address | None = None) -> OpenStudy:
    """Create the study, or go on with the one that is there; any number of processes may at once.

    ``address``: as `resolve_address` says; None: as it says without a flag.

    Raises:
        StudyError: with nothing changed, where the database can't be used or belongs to another spec:
            every difference is named, old and new.
        EnvironmentMissingError: the database server can't be reached, or its driver is missing.
    """
    if address is None:
        address = resolve_address(study_path, spec, None, os.environ)
    if address.is_server:
        return _open_on_server(study_path, spec, address)
    turn = FileTurn(study_path / TURN)
    with turn.take():
        return _open_in_folder(study_path, spec, address, turn)


def _open_in_folder(study_path: Path, spec: StudySpec, address: Address, turn: Turn) -> OpenStudy:
    refuse_distant(study_path, os.environ)
    database = study_path / DATABASE
    if is_new := not database.exists() or database.stat().st_size == 0:
        _make_file(database, spec, address)
    else:
        check_database(database)
    storage = open_file(database, address, is_made=True)
    storage.patience.turn = turn
    if not storage.get_all_studies():
        make_quick(storage, database)
        study = _create(spec, storage, spec.name)
        stamp(study, spec)
        return OpenStudy(study_path, spec, study, storage, 0, address, storage.patience, turn)
    study = load(storage, only_name(storage, database))
    num_before = 0 if is_new else len(study.get_trials(deepcopy=False))
    if is_blank(study):
        stamp(study, spec)
    check_same_spec(study_path, study.user_attrs, spec)
    make_quick(storage, database)
    study.sampler = make_sampler(spec, num_before)
    return OpenStudy(study_path, spec, study, storage, num_before, address, storage.patience, turn)


def _make_file(database: Path, spec: StudySpec, address: Address) -> None:
    """Make the study's file under another name first: whatever dies meanwhile, no half of one has the right name."""
    unfinished = database.with_name(UNFINISHED)
    for rest in ("", "-journal", "-wal", "-shm"):  # of one that died, or beside an empty file
        unfinished.with_name(f"{UNFINISHED}{rest}").unlink(missing_ok=True)
        database.with_name(f"{DATABASE}{rest}").unlink(missing_ok=True)
    storage = open_file(unfinished, address)
    stamp(_create(spec, storage, spec.name), spec)
    storage.remove_session()
    storage.engine.dispose()
    unfinished.replace(database)


def _open_on_server(study_path: Path, spec: StudySpec, address: Address) -> OpenStudy:
    storage = server.connect(address, is_made=True)
    turn = ServerTurn(storage.engine, storage.scoped_session, address.name)
    storage.patience.turn = turn

    def found_or_made() -> tuple[optuna.Study, int]:
        home = read_home(study_path) or secrets.token_hex(8)
        if not has_study(storage, address.name):
            refuse_without_its_trials(study_path, address)
            note_address(study_path, address, home)
            study = _create(spec, storage, address.name)
            stamp(study, spec, study_path, home)
            return study, 0
        study = load(storage, address.name)
        if is_blank(study):
            note_address(study_path, address, home)
            stamp(study, spec, study_path, home)
        attrs = study.user_attrs
        check_home(study_path, attrs, address)
        check_same_spec(study_path, attrs, spec)
        if attrs.get(ATTR_FOLDER) != str(study_path.absolute()):  # it was moved
            study.set_user_attr(ATTR_FOLDER, str(study_path.absolute()))
        trials = len(study.get_trials(deepcopy=False))
        study.sampler = make_sampler(spec, trials)
        return study, trials

    def in_turn() -> tuple[optuna.Study, int]:
        with turn.take():
            return found_or_made()

    try:
        study, trials = storage.patience.insist(in_turn, in_turn=True)
    except BaseException:
        storage.remove_session()
        storage.engine.dispose()
        raise
    return OpenStudy(study_path, spec, study, storage, trials, address, storage.patience, turn)


def check_study(study_path: Path, spec: StudySpec, address: Address | None = None) -> None:
    """Raise what `open_study` would raise about an existing study; creates nothing."""
    check_folder(study_path)
    if address is None:
        address = resolve_address(study_path, spec, None, os.environ)
    if address.is_server:
        server.check_reachable(address)
        with _on_server(address) as storage:
            if storage is None or not has_study(storage, address.name):
                refuse_without_its_trials(study_path, address)
                return
            study = load(storage, address.name)
            if not is_blank(study):
                check_home(study_path, study.user_attrs, address)
                check_same_spec(study_path, study.user_attrs, spec)
        return
    refuse_distant(study_path, os.environ)
    database = study_path / DATABASE
    # Who makes the study has its turn meanwhile, and half of its tables are there.
    turn = study_path / TURN
    with FileTurn(turn).take() if turn.exists() and os.access(turn, os.W_OK) else nullcontext():
        if database.exists() and database.stat().st_size > 0:
            with reading(study_path) as study:
                if not is_blank(study):
                    check_same_spec(study_path, study.user_attrs, spec)


@contextmanager
def _on_server(address: Address) -> Generator[PatientStorage | None]:
    """The storage to look into; none where the database is empty."""
    storage = server.connect(address) if server.has_tables(address) else None
    try:
        yield storage
    finally:
        if storage is not None:
            storage.remove_session()
            storage.engine.dispose()


def _create(spec: StudySpec, storage: PatientStorage, name: str) -> optuna.Study:
    return optuna.create_study(
        storage=storage,
        study_name=name,
        direction="maximize",
        sampler=make_sampler(spec, 0),
        pruner=optuna.pruners.NopPruner(),  # kltune decides itself (kltune.study.pruner)
    )
