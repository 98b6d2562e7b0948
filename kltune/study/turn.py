"""A study in, the sole right to decide what is asked next out: one member at a time, over all of them.

On a server the right is a lock of the very connection by which the decision is written: where that is
lost, so is the right, and nothing more of the decision reaches the database.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.orm import Session, scoped_session

from kltune.errors import RunError, StudyError

LIMIT_S: Final = 300.0
"""How long the turn is waited for."""
STALL_S: Final = 60
"""A server takes the turn from a member that says nothing for this long, as one that was stopped."""
_ROUND_S: Final = 5
_SAID_S: Final = 30
_RIVALS_S: Final = 60
"""Seconds after a wait in which others are taken to want the turn, too."""
_POLL_S: Final = (0.002, 0.02)

_logger = logging.getLogger(__name__)


class TurnLostError(Exception):
    """The connection that held the turn is gone: what was being decided must be decided again."""


class Turn(ABC):
    """How the members of a study take turns; within the turn the same thread may take it again."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self.limit_s = limit_s
        self._own = threading.RLock()
        self._depth = 0

    @contextmanager
    def take(self) -> Generator[None]:
        """Hold the turn. Raises `RunError` where another member has it for too long."""
        with self._own, self._hold() if self._depth == 0 else _held():
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1

    @property
    def is_fenced_here(self) -> bool:
        """Whether this thread writes by a connection that must not be replaced by another."""
        return False

    @abstractmethod
    def _hold(self) -> AbstractContextManager[None]: ...

    def _waited(self, since: float, *, is_said: bool) -> bool:
        """Say once that another member has the turn, and refuse to wait for ever."""
        waited = time.monotonic() - since
        if waited > self.limit_s:
            raise RunError(
                f"another worker has held this study's turn for {waited:.0f} s without an end; is one "
                "stopped (Ctrl-Z) or hung? End it, then run this again: nothing is lost"
            )
        if waited > _SAID_S and not is_said:
            _logger.warning("waiting for another worker of this study to ask for its trial ...")
            return True
        return is_said


class FileTurn(Turn):
    """Over the members that reach the same folder: a lock on a file, which ends with its process."""

    def __init__(self, path: Path, limit_s: float = LIMIT_S) -> None:
        super().__init__(limit_s)
        self._path = path
        self._waited_at: float | None = None
        self._released_at = 0.0

    @contextmanager
    def _hold(self) -> Generator[None]:
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise StudyError(f"{self._path.parent}: can't be written in ({error})") from error
        try:
            self._lock(descriptor)
            try:
                yield
            finally:
                # Not by closing alone: a process that was forked meanwhile has the descriptor, too.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
                self._released_at = time.monotonic()
        finally:
            os.close(descriptor)

    def _lock(self, descriptor: int) -> None:
        since, is_said, (pause, longest) = time.monotonic(), False, _POLL_S
        has_rivals = self._waited_at is not None and since - self._waited_at < _RIVALS_S
        if has_rivals and since - self._released_at < longest:
            time.sleep(1.5 * longest)  # who has just had the turn lets each of the others try once
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._waited_at = time.monotonic()
                is_said = self._waited(since, is_said=is_said)
                time.sleep(pause)
                pause = min(longest, pause * 1.5)
            else:
                return


class ServerTurn(Turn):
    """Over the members that reach the same database server.

    The lock belongs to a connection, and what this thread writes in the turn goes by it.
    """

    def __init__(
        self, engine: Engine, sessions: scoped_session[Session], name: str, limit_s: float = LIMIT_S
    ) -> None:
        super().__init__(limit_s)
        self._engine = engine
        self._sessions = sessions
        digest = hashlib.sha256(f"kltune {name}".encode()).digest()
        self._key = int.from_bytes(digest[:8], signed=True)
        self._holder: int | None = None

    @property
    def is_fenced_here(self) -> bool:
        """Whether this thread has the turn."""
        return self._holder == threading.get_ident()

    @contextmanager
    def _hold(self) -> Generator[None]:
        connection = self._engine.connect()
        try:
            self._lock(connection)
            event.listen(connection, "begin", _refuse_another)
            self._sessions.remove()
            self._sessions(bind=connection)
            self._holder = threading.get_ident()
            try:
                yield
            finally:
                self._holder = None
                self._sessions.remove()
                self._unlock(connection)
        finally:
            with suppress(SQLAlchemyError):
                connection.close()

    def _lock(self, connection: Connection) -> None:
        since, is_said = time.monotonic(), False
        while not self._is_locked(connection):
            is_said = self._waited(since, is_said=is_said)

    def _is_locked(self, connection: Connection) -> bool:
        """Wait for one round on the server, where the members stand in line."""
        if connection.dialect.name != "postgresql":
            named = {"name": self._mysql_name(connection), "wait": _ROUND_S}
            found = connection.execute(text("SELECT GET_LOCK(:name, :wait)"), named).scalar()
            connection.execute(text(f"SET SESSION wait_timeout = {STALL_S}"))
            connection.commit()
            return found == 1
        try:
            # The limit is local to the transaction; the lock itself outlives it. Each statement is a
            # round trip, for which the others wait, too.
            limit = (
                f"SELECT set_config('lock_timeout', '{_ROUND_S}s', true), pg_advisory_lock(:key)"
            )
            connection.execute(
                text(limit + _silence(connection, f"{STALL_S}s")), {"key": self._key}
            )
            connection.commit()
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) != "55P03":  # lock_not_available
                raise
            connection.rollback()
            return False
        return True

    def _unlock(self, connection: Connection) -> None:
        """Give the turn back; where the connection is lost, the server has done so."""
        try:
            if connection.in_transaction():
                connection.rollback()
            if connection.dialect.name != "postgresql":
                named = {"name": self._mysql_name(connection)}
                connection.execute(text("SELECT RELEASE_LOCK(:name)"), named)
                connection.execute(text("SET SESSION wait_timeout = @@GLOBAL.wait_timeout"))
            else:
                unlock = "SELECT pg_advisory_unlock(:key)" + _silence(connection, "0")
                connection.execute(text(unlock), {"key": self._key})
            connection.commit()
            event.remove(connection, "begin", _refuse_another)
        except (SQLAlchemyError, TurnLostError):
            with suppress(SQLAlchemyError):
                connection.invalidate()

    def _mysql_name(self, connection: Connection) -> str:
        """MySQL's locks are named over all databases of a server."""
        database = connection.engine.url.database or ""
        return hashlib.sha256(f"{database} {self._key}".encode()).hexdigest()[:60]


def _silence(connection: Connection, limit: str) -> str:
    """A further column that sets how long this connection may say nothing, where PostgreSQL knows that (14)."""
    version = connection.dialect.server_version_info
    is_known = version is not None and version[0] in range(14, 1000)
    return f", set_config('idle_session_timeout', '{limit}', false)" if is_known else ""


@contextmanager
def _held() -> Generator[None]:
    yield


def _refuse_another(connection: Connection) -> None:
    """SQLAlchemy would go on by a new connection, which does not have the turn."""
    if connection.invalidated:
        raise TurnLostError(
            "the connection to the database was lost while this worker had the turn"
        )
