"""A call of a study's storage in, its answer out, however long a pass of the database takes, within a bound.

What passes: a file that another process writes in, a connection that is lost, a server that restarts.
"""

from __future__ import annotations

import errno
import functools
import logging
import random
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import optuna
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.trial import TrialState
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from kltune.errors import RunError
from kltune.study.address import Address
from kltune.study.turn import Turn, TurnLostError
from kltune.trial.disk import disk_error

T = TypeVar("T")

LIMIT_S: Final = 300.0
"""How long a database may be away before the session gives up."""
_PAUSE_S: Final = (0.1, 5.0)
_SLICE_S: Final = 0.2
_PASSING_STATES: Final = ("08", "40", "53", "55", "57")
"""Classes of PostgreSQL's codes: connection, rollback (deadlock), resources, object in use, operator's intervention."""
_PASSING_NUMBERS: Final = frozenset({1040, 1053, 1205, 1213, 2002, 2003, 2006, 2013, 2014, 2055})
"""MySQL's: too many connections, shutdown, lock wait, deadlock, connection refused or lost."""

_NO_ROOM: Final = re.compile(r"disk is full|readonly database|disk I/O error|unable to open")
"""What sqlite says of a disk that takes no more."""

_logger = logging.getLogger(__name__)


class Patience:
    """Repeats what fails for a passing reason, and says so once for each time that the database is away."""

    def __init__(self, address: Address, limit_s: float = LIMIT_S) -> None:
        self._address = address
        self.limit_s = limit_s
        self.turn: Turn | None = None
        self.folder = Path()
        """Of the study: where sqlite's file is."""
        self._is_hurried: Callable[[], bool] = lambda: False
        self._has_given_up = False
        self.waits = 0
        """How often something was repeated."""

    @property
    def has_given_up(self) -> bool:
        """Whether the database was away for too long, and has not answered since."""
        return self._has_given_up

    def heed(self, is_hurried: Callable[[], bool]) -> None:
        """Give up at once where this is true: whoever is asked to stop waits for no database."""
        self._is_hurried = is_hurried

    def insist(self, call: Callable[[], T], *, in_turn: bool = False) -> T:
        """Call until it answers. ``in_turn``: all of a decision, which is made again where the turn was lost.

        Raises:
            RunError: the database was away for too long, or refuses for a reason that stays.
            DiskError: it is a file, and its disk is full or can't be written.
        """
        since: float | None = None
        pause, longest = _PAUSE_S
        while True:
            try:
                answer = call()
            except (StorageInternalError, SQLAlchemyError, TurnLostError) as error:
                if not in_turn and self.turn is not None and self.turn.is_fenced_here:
                    raise  # to whoever holds the turn: the decision is made again as a whole
                since = self._since(error, since)
            else:
                if since is not None:
                    away = time.monotonic() - since
                    level = logging.WARNING if away > 1 else logging.DEBUG
                    _logger.log(level, "the study's storage answers again, after %.0f s", away)
                self._has_given_up = False
                return answer
            self._sleep(pause * random.uniform(0.5, 1.0))
            pause = min(longest, 2 * pause)

    def _since(self, error: Exception, since: float | None) -> float:
        """When it went away, for the first failure now; raises where it isn't waited for."""
        now = time.monotonic()
        reason = first_words(error)
        where = self._address.shown
        if not is_passing(error):
            if is_of_our_making(error):
                raise error
            if self._address.kind == "sqlite" and _NO_ROOM.search(reason):
                raise disk_error(self.folder / where, OSError(errno.ENOSPC, reason)) from error
            self._refuse(error, f"{where}: the study's storage refuses ({reason})")
        self.waits += 1
        if since is None and not isinstance(error, TurnLostError):
            _logger.warning(
                "%s: the study's storage can't be used now (%s); trying again for up to %.0f s",
                where,
                self._address.hide(reason),
                self.limit_s,
            )
        since = now if since is None else since
        if self._has_given_up or now - since > self.limit_s or self._is_hurried():
            self._has_given_up = True
            self._refuse(
                error,
                f"{where}: the study's storage could not be used for {now - since:.0f} s ({reason}); the "
                "checkpoints are kept, and the same command goes on from them once it is back",
            )
        return since

    def _refuse(self, error: Exception, message: str) -> None:
        hidden = self._address.hide(message)
        # What is chained is printed with a traceback: only what holds no secret.
        whole = "".join(f"{link} {link.__dict__}" for link in _chain(error))
        raise RunError(hidden) from (error if self._address.hide(whole) == whole else None)

    def _sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self._is_hurried():
            time.sleep(min(left, _SLICE_S))


class PatientStorage(optuna.storages.RDBStorage):
    """Optuna's storage, which repeats what fails for a passing reason."""

    patience: Patience

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        """As Optuna's. An end whose answer was lost is found, not taken for another's."""
        tries = 0

        def end() -> bool:
            nonlocal tries
            tries += 1
            try:
                return super(PatientStorage, self).set_trial_state_values(trial_id, state, values)
            except UpdateFinishedTrialError:
                trial = self.get_trial(trial_id)
                same = trial.state is state and list(trial.values or ()) == list(values or ())
                if tries == 1 or not same:
                    raise
                return True

        return self.patience.insist(end)


def _patient(name: str) -> Callable[..., Any]:
    plain: Callable[..., Any] = getattr(optuna.storages.RDBStorage, name)

    @functools.wraps(plain)
    def call(self: PatientStorage, *args: Any, **kwargs: Any) -> Any:
        return self.patience.insist(lambda: plain(self, *args, **kwargs))

    return call


for _name in (
    *("create_new_study", "get_all_studies", "get_study_id_from_name", "get_study_name_from_id"),
    *("get_study_directions", "get_study_user_attrs", "get_study_system_attrs"),
    *("set_study_user_attr", "set_study_system_attr", "_create_new_trial", "_get_trials"),
    *("get_trial", "get_trial_id_from_study_id_trial_number", "_set_trial_param"),
    *("set_trial_intermediate_value", "set_trial_user_attr", "set_trial_system_attr"),
    *("record_heartbeat", "_get_stale_trial_ids"),
):
    setattr(PatientStorage, _name, _patient(_name))


def is_passing(error: BaseException) -> bool:
    """Whether the same call may succeed a little later."""
    return any(_passes(link) for link in _chain(error))


def is_of_our_making(error: BaseException) -> bool:
    """Whether the database refused what it was asked, not the asking: Optuna and kltune know what to do."""
    return not any(isinstance(link, (OperationalError, InterfaceError)) for link in _chain(error))


def _passes(error: BaseException) -> bool:
    if isinstance(error, (TurnLostError, PoolTimeoutError)):
        return True
    if not isinstance(error, DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    if not isinstance(error, (OperationalError, InterfaceError)):
        return str(getattr(error.orig, "sqlstate", "")).startswith("40")
    origin = error.orig
    module = type(origin).__module__
    if module.startswith("sqlite3"):
        return re.search(r"\b(locked|busy)\b", str(origin)) is not None
    if module.startswith("psycopg"):
        state = getattr(origin, "sqlstate", None)
        return state is None or str(state).startswith(_PASSING_STATES)
    number = origin.args[0] if origin is not None and origin.args else None
    return number in _PASSING_NUMBERS or isinstance(error, InterfaceError)


def first_words(error: BaseException) -> str:
    """What the database itself said, in one line, without the statement."""
    origin = next((e.orig for e in _chain(error) if isinstance(e, DBAPIError) and e.orig), error)
    line = next((part for part in str(origin).splitlines() if part.strip()), type(origin).__name__)
    return line.strip()


def _chain(error: BaseException) -> list[BaseException]:
    links: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in links:
        links.append(link)
        link = link.__cause__ or link.__context__
    return links
