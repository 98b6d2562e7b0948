"""The address of a database server in, Optuna's storage on it out, or one sentence that says why not."""

from __future__ import annotations

import importlib.util
import logging
import re
import threading
import time
import warnings
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import optuna
from sqlalchemy import Engine, create_engine, event, inspect, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.orm import scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from kltune.errors import EnvironmentMissingError, StudyError
from kltune.spec.storage import HOW_TO_GIVE_A_SECRET
from kltune.study.address import Address
from kltune.study.database import HEARTBEAT_S, OPTUNA_SCHEMA, other_schema, quieten
from kltune.study.patient import Patience, PatientStorage, first_words
from kltune.study.turn import ServerTurn

REACH_S: Final = 9.0
"""Within this a server must have answered for the first time, the lookup of its name included."""
SETUP: Final = "set-up of tables"
"""Name of the turn in which Optuna's tables are made."""
_CONNECT_S: Final = 4
"""For each of a host's numbers; a name often has two."""
_DRIVERS: Final = {"postgresql": "psycopg", "mysql": "pymysql"}
_TABLES: Final = {"studies", "trials", "version_info"}
_OPEN_S: Final = 60
"""Seconds after which a server ends the transaction of a process that was stopped within it: its rows are free."""
_SECRET_MISSING: Final = re.compile(r"password|access denied", re.IGNORECASE)
_TRIES: Final = 3
RESTART_S: Final = 300.0
"""How long a server that says that it restarts is waited for, as `kltune.study.patient` does in the middle of a search."""
_RESTARTING: Final = re.compile(
    r"administrator command|is shutting down|is starting up|recovery mode|shutdown in progress|"
    r"server closed the connection|lost connection",
    re.IGNORECASE,
)
"""What PostgreSQL (SQLSTATE 57P01 to 57P03) and MySQL say when they go down or come up."""
_LOOK_S: Final = 1.0

_logger = logging.getLogger(__name__)


def driver_url(address: Address) -> str:
    """The address as SQLAlchemy takes it, with the driver that kltune means.

    Raises `EnvironmentMissingError` where that driver is not installed.
    """
    if address.url is None:
        raise ValueError("a study in sqlite has no server")
    driver = _DRIVERS[address.kind]
    if importlib.util.find_spec(driver) is None:
        raise EnvironmentMissingError(
            f"{address.shown}: needs the driver {driver}, which is not installed: "
            f"pip install 'kltune[{'postgres' if driver == 'psycopg' else 'mysql'}]'"
        )
    return f"{address.kind}+{driver}://{address.url.partition('://')[2]}"


def check_reachable(address: Address) -> None:
    """Ask the server for a sign of life; return within 10 s.

    Raises `EnvironmentMissingError` in one sentence: no such host, nobody there, not let in, no such database.
    """
    engine = create_engine(driver_url(address), poolclass=NullPool, connect_args=_settings(address))
    problem: list[Exception | None] = []

    def ask() -> None:
        try:
            with engine.connect() as connection:
                connection.execute(text("SELECT 1"))
        except (SQLAlchemyError, OSError, ValueError, UnicodeError) as error:
            problem.append(error)
        else:
            problem.append(None)

    # A daemon: looking a name up can't be interrupted, and must not keep the process from ending.
    asking = threading.Thread(target=ask, daemon=True, name="kltune-reach")
    asking.start()
    asking.join(REACH_S)
    if not problem:
        raise EnvironmentMissingError(
            f"{address.shown}: no answer from the database server within {REACH_S:.0f} s"
        )
    if problem[0] is not None:
        raise EnvironmentMissingError(_why(address, problem[0])) from None


def await_restart(address: Address, patience_s: float = RESTART_S) -> None:
    """`check_reachable`, but a server that says that it is going down or coming up is waited for.

    One that nobody answers for is refused at once, as it may be a wrong address.
    """
    until = time.monotonic() + patience_s
    is_said = False
    while True:
        try:
            check_reachable(address)
        except EnvironmentMissingError as error:
            # Between going down and coming up nobody answers for a while.
            if time.monotonic() >= until or not (is_said or _RESTARTING.search(str(error))):
                raise
            if not is_said:
                _logger.warning("%s: the database server restarts; waiting for it", address.shown)
            is_said = True
            time.sleep(_LOOK_S)
        else:
            return


def connect(address: Address, *, is_made: bool = False) -> PatientStorage:
    """Optuna's storage on the server; ``is_made``: its tables are made where there are none.

    Raises:
        EnvironmentMissingError: no driver, or the server can't be used.
        StudyError: there are no tables of this Optuna's; nothing was changed.
    """
    for left in reversed(range(_TRIES)):
        await_restart(address)
        try:
            return _opened(address, is_made=is_made)
        # Optuna's own: the server went away while it looked at its tables.
        except (SQLAlchemyError, RuntimeError, optuna.exceptions.StorageInternalError) as error:
            words = _why(address, error)
            if not left or not _RESTARTING.search(words):
                raise EnvironmentMissingError(words) from None
    raise AssertionError("the last try returns or raises")


def _opened(address: Address, *, is_made: bool) -> PatientStorage:
    if not has_tables(address):
        if not is_made:
            raise StudyError(
                f"{address.shown}: no study here (the database holds none of Optuna's tables)"
            )
        _make_tables(address)
    return _storage(address, is_made=True)


def read_only_storage(address: Address) -> optuna.storages.RDBStorage:
    """For a process that looks and lives on, as a dashboard: between two looks it holds no connection."""
    settings = {"poolclass": NullPool, "connect_args": _settings(address)}
    return optuna.storages.RDBStorage(
        _braced(driver_url(address)),
        engine_kwargs=settings,
        skip_compatibility_check=True,
        skip_table_creation=True,
    )


def _make_tables(address: Address) -> None:
    """Let Optuna make its tables; one process at a time, or two that begin would both try."""
    engine = _spoken_to(create_engine(driver_url(address), **_engine_settings(address)), address)
    try:
        sessions = scoped_session(sessionmaker(bind=engine))
        with ServerTurn(engine, sessions, SETUP).take():
            for left in reversed(range(_TRIES)):
                if has_tables(address):
                    return
                try:
                    made = _storage(address, is_made=False)
                except DBAPIError:
                    # An Optuna that is not kltune's may make them at this time, and knows no turn.
                    if not left:
                        raise
                else:
                    made.engine.dispose()
    finally:
        engine.dispose()


def _storage(address: Address, *, is_made: bool) -> PatientStorage:
    quieten()
    with warnings.catch_warnings():
        # Heartbeats are marked experimental; the pinned version is tested.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        storage = PatientStorage(
            _braced(driver_url(address)),
            engine_kwargs=_engine_settings(address),
            heartbeat_interval=HEARTBEAT_S,
            skip_compatibility_check=is_made,  # done before
            skip_table_creation=is_made,
        )
    storage.patience = Patience(address)
    storage.remove_session()
    storage.engine.dispose()
    _spoken_to(storage.engine, address)
    return storage


def has_tables(address: Address) -> bool:
    """Whether Optuna's tables are there. Raises `StudyError` for those of another one."""
    engine = create_engine(driver_url(address), poolclass=NullPool, connect_args=_settings(address))
    with engine.connect() as connection:
        tables = set(inspect(connection).get_table_names())
        found = None
        if "alembic_version" in tables:
            rows = connection.execute(text("SELECT version_num FROM alembic_version")).all()
            found = str(rows[0][0]) if rows else None
    if not _TABLES & tables and found is not None:
        raise StudyError(
            f"{address.shown}: this database belongs to another program (MLflow's, for one, keeps its "
            "tables' version where Optuna does); give kltune a database of its own. Nothing was changed."
        )
    if found is None:
        return False  # none yet, or half of them, which Optuna completes
    if found != OPTUNA_SCHEMA:
        raise StudyError(
            other_schema(
                address.shown, f"{driver_name(address)}", found, "a backup of the database"
            )
        )
    return tables >= _TABLES


def driver_name(address: Address) -> str:
    """The address with its driver and without its secret, as Optuna's own commands take it."""
    return f"{address.kind}+{_DRIVERS[address.kind]}://{address.shown.partition('://')[2]}"


def _engine_settings(address: Address) -> dict[str, Any]:
    """One connection at rest: 50 workers must not use up a server's usual 100."""
    return {
        "pool_size": 1,
        "max_overflow": 3,  # the turn, the lease, and what Optuna nests; closed after use
        "pool_timeout": 60,
        "pool_recycle": 1800,
        "pool_pre_ping": True,
        "connect_args": _settings(address),
    }


def _settings(address: Address) -> dict[str, Any]:
    """For the driver: a server that vanished is noticed within a minute or so."""
    if address.kind == "mysql":
        # It has no name for its user's password file; reading may wait for a lock.
        return {"connect_timeout": _CONNECT_S, "read_timeout": 120, "write_timeout": 120}
    query = parse_qs(urlsplit(address.url or "").query)
    wanted = {
        "connect_timeout": _CONNECT_S,
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "tcp_user_timeout": 60_000,  # ms
        "application_name": "kltune",
    }
    # Prepared statements would not survive a pooler such as pgbouncer.
    return {"prepare_threshold": None} | {k: v for k, v in wanted.items() if k not in query}


def _spoken_to(engine: Engine, address: Address) -> Engine:
    """The engine, each of whose connections tells the server how long it waits for a process that is stopped."""

    def on_connect(connection: Any, _record: object) -> None:
        with connection.cursor() as cursor:
            if address.kind == "mysql":
                cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {_OPEN_S}")
            else:
                cursor.execute(f"SET SESSION idle_in_transaction_session_timeout = '{_OPEN_S}s'")
                for name, value in (("idle", 30), ("interval", 10), ("count", 3)):
                    cursor.execute(f"SET SESSION tcp_keepalives_{name} = {value}")
        connection.commit()

    event.listen(engine, "connect", on_connect)
    return engine


def _braced(url: str) -> str:
    """Optuna fills {placeholders} of an address."""
    return url.replace("{", "{{").replace("}", "}}")


def _why(address: Address, error: Exception) -> str:
    """The driver's own words, and what to do where they speak of a password."""
    words = address.hide(first_words(error))
    advice = f"; {HOW_TO_GIVE_A_SECRET}" if _SECRET_MISSING.search(words) else ""
    return f"{address.shown}: the database server can't be used: {words}{advice}"
