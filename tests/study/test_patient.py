"""A database that goes away for a while costs time and nothing else; one that stays away ends the session."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
import warnings
from pathlib import Path

import optuna
import pytest
from fake_bank import small_spec
from optuna.exceptions import OptunaError, StorageInternalError, UpdateFinishedTrialError
from optuna.trial import TrialState
from postgres_case import Database, postgres
from sqlalchemy.exc import IntegrityError, OperationalError

from kltune.errors import KltuneError, RunError
from kltune.study.address import Address
from kltune.study.patient import Patience, first_words, is_passing
from kltune.study.storage import OpenStudy, open_study
from kltune.study.turn import TurnLostError

__all__ = ["postgres"]  # a fixture
SECRET = Address("postgresql://ann:hunter2@db/kl", "small")


def failure(words: str = "database is locked", kind: type[Exception] = sqlite3.OperationalError):
    try:
        try:
            raise OperationalError("UPDATE trials", {}, kind(words))
        except OperationalError as inner:
            raise StorageInternalError("An exception is raised during the commit.") from inner
    except StorageInternalError as error:
        return error


class Failing:
    def __init__(self, times: int, error: Exception) -> None:
        self.left, self.error = times, error

    def __call__(self) -> str:
        self.left -= 1
        if self.left >= 0:
            raise self.error
        return "done"


def test_what_passes_is_repeated_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    patience = Patience(Address(None, "small"))
    assert patience.insist(Failing(3, failure())) == "done"
    assert patience.waits == 3
    (said,) = [record.getMessage() for record in caplog.records]
    assert "database is locked" in said
    assert "up to 300 s" in said
    assert "UPDATE" not in said


def test_what_stays_is_refused_at_once_in_the_databases_own_words() -> None:
    call = Failing(1, failure("no such table: trials"))
    with pytest.raises(RunError, match=r"refuses \(no such table: trials\)") as refused:
        Patience(Address(None, "small")).insist(call)
    assert refused.value.exit_code == 1
    assert call.left == 0


def test_what_optuna_itself_knows_what_to_do_with_goes_through() -> None:
    error = IntegrityError("INSERT", {}, sqlite3.IntegrityError("UNIQUE"))
    with pytest.raises(IntegrityError):
        Patience(Address(None, "small")).insist(Failing(1, error))
    with pytest.raises(KeyError):
        Patience(Address(None, "small")).insist(Failing(1, KeyError("x")))


def test_patience_ends_and_then_costs_no_more_time() -> None:
    patience = Patience(Address(None, "small"), limit_s=0.3)
    with pytest.raises(RunError, match=r"could not be used for .* s .*the same command goes on"):
        patience.insist(Failing(10**6, failure()))
    before = time.monotonic()
    with pytest.raises(RunError):
        patience.insist(Failing(10**6, failure()))
    assert time.monotonic() - before < 0.1
    assert patience.insist(Failing(0, failure())) == "done"
    assert patience.insist(Failing(1, failure())) == "done"  # it was back: waited for again


def test_whoever_is_asked_to_stop_waits_for_no_database() -> None:
    patience = Patience(Address(None, "small"))
    stop = threading.Event()
    patience.heed(stop.is_set)
    threading.Timer(0.3, stop.set).start()
    before = time.monotonic()
    with pytest.raises(RunError):
        patience.insist(Failing(10**6, failure()))
    assert time.monotonic() - before < 2


def test_no_password_is_in_what_is_said_logged_or_chained(
    caplog: pytest.LogCaptureFixture,
) -> None:
    import traceback

    patience = Patience(SECRET, limit_s=0.0)
    for words in ("locked: postgresql://ann:hunter2@db/kl", "no such: hunter2"):
        with pytest.raises(RunError) as refused:
            patience.insist(Failing(10**6, failure(words)))
        text = "".join(traceback.format_exception(refused.value))
        assert "hunter2" not in text
        assert "***" in text
    assert "hunter2" not in caplog.text


def test_drivers_say_what_passes_each_in_its_way() -> None:
    import psycopg
    import pymysql

    def wrapped(origin: Exception) -> Exception:
        return OperationalError("SELECT 1", {}, origin)

    assert is_passing(wrapped(psycopg.errors.AdminShutdown("x")))
    assert is_passing(wrapped(psycopg.OperationalError("connection refused")))
    assert is_passing(wrapped(psycopg.errors.DeadlockDetected("x")))
    assert is_passing(wrapped(psycopg.errors.TooManyConnections("x")))
    assert not is_passing(wrapped(psycopg.errors.InvalidPassword("x")))
    assert not is_passing(wrapped(psycopg.errors.UndefinedTable("x")))
    assert is_passing(wrapped(pymysql.err.OperationalError(2013, "Lost connection")))
    assert is_passing(wrapped(pymysql.err.OperationalError(1213, "Deadlock found")))
    assert not is_passing(wrapped(pymysql.err.OperationalError(1045, "Access denied")))
    assert not is_passing(wrapped(sqlite3.OperationalError("attempt to write a readonly database")))
    assert first_words(wrapped(psycopg.OperationalError("\nFATAL:  no\nDETAIL: x"))) == "FATAL:  no"


def test_an_end_whose_answer_was_lost_is_found_and_another_s_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_study(tmp_path, small_spec())
    plain = optuna.storages.RDBStorage.set_trial_state_values
    losing = [True]

    def lose_the_answer(self: object, *args: object, **kwargs: object) -> bool:
        answer = plain(self, *args, **kwargs)  # pyright: ignore[reportArgumentType]
        if losing.pop() if losing else False:
            raise failure()
        return answer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # heartbeats, which the lease sends
        trials = [opened.optuna_study.ask() for _ in range(3)]
    monkeypatch.setattr(optuna.storages.RDBStorage, "set_trial_state_values", lose_the_answer)
    opened.optuna_study.tell(trials[0], 0.5)
    assert not losing
    assert opened.optuna_study.trials[0].value == 0.5
    opened.optuna_study.tell(trials[1].number, state=TrialState.FAIL)
    with pytest.raises(UpdateFinishedTrialError):
        opened.storage.set_trial_state_values(
            trials[1]._trial_id, TrialState.COMPLETE, values=[1.0]
        )
    opened.close()


def test_a_reader_that_holds_the_file_beyond_the_busy_timeout_costs_time_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # field case B2
    monkeypatch.setattr("kltune.study.database.BUSY_TIMEOUT_S", 0.2)
    opened = open_study(tmp_path, small_spec())
    opened.optuna_study.enqueue_trial({})
    is_held = threading.Event()

    def hold() -> None:
        connection = sqlite3.connect(tmp_path / "study.db", isolation_level=None)
        connection.execute("BEGIN EXCLUSIVE")
        is_held.set()
        time.sleep(1.5)
        connection.execute("ROLLBACK")
        connection.close()

    holder = threading.Thread(target=hold)
    holder.start()
    is_held.wait()
    opened.optuna_study.set_user_attr("kept", 1)
    holder.join()
    assert opened.patience.waits >= 2
    assert opened.optuna_study.user_attrs["kept"] == 1
    opened.close()


def work(opened: OpenStudy, count: int, ends: list[int]) -> None:
    """Rounds of a member: ask, report, tell; as the ledger does, in its turn."""
    study = opened.optuna_study
    for _ in range(count):

        def ask() -> optuna.Trial | None:
            lost = [t for t in study.get_trials() if t.state is TrialState.RUNNING]
            for trial in lost:  # of an ask whose answer was lost
                if "kltune.ask" not in trial.user_attrs:
                    study.tell(trial.number, state=TrialState.FAIL)
            trial = study.ask()
            trial.set_user_attr("kltune.ask", "x")
            return trial

        trial = opened.decide(ask)
        assert trial is not None
        for step in range(3):
            trial.report(0.1 * step, step)
        study.tell(trial, float(trial.number))
        ends.append(trial.number)


def test_a_server_that_restarts_amid_the_work_loses_nothing_and_doubles_nothing(
    tmp_path: Path, postgres: Database, caplog: pytest.LogCaptureFixture
) -> None:
    spec = small_spec(storage={"url": postgres.url})
    opened = [open_study(tmp_path, spec) for _ in range(3)]
    ends: list[int] = []
    errors: list[BaseException] = []

    def member(one: OpenStudy) -> None:
        try:
            work(one, 12, ends)
        except (KltuneError, OptunaError, TurnLostError) as error:
            errors.append(error)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        threads = [threading.Thread(target=member, args=(one,)) for one in opened]
        for thread in threads:
            thread.start()
        for away in (2.0, 0.0):
            time.sleep(1.0)
            postgres.server.restart(away)
        for thread in threads:
            thread.join()
    assert errors == []
    trials = opened[0].optuna_study.get_trials()
    done = [t for t in trials if t.state is TrialState.COMPLETE]
    assert sorted(ends) == [t.number for t in done]
    assert len(done) == 36
    assert all(t.value == t.number for t in done)
    assert all(set(t.intermediate_values) == {0, 1, 2} for t in done)
    assert {t.state for t in trials} <= {TrialState.COMPLETE, TrialState.FAIL}
    assert sum(one.patience.waits for one in opened) > 0
    for one in opened:
        one.close()


@pytest.mark.slow
def test_a_server_that_is_away_for_twenty_seconds_is_waited_for(
    tmp_path: Path, postgres: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    opened = open_study(tmp_path, small_spec(storage={"url": postgres.url}))
    postgres.server.stop()
    timer = threading.Timer(20.0, postgres.server.start)
    timer.start()
    before = time.monotonic()
    opened.decide(lambda: opened.optuna_study.enqueue_trial({"x": 1}))
    assert 19 < time.monotonic() - before < 60
    timer.join()
    assert len(opened.optuna_study.get_trials()) == 1
    said = [r.getMessage() for r in caplog.records if r.name.startswith("kltune")]
    assert len([line for line in said if "can't be used now" in line]) == 1
    assert len([line for line in said if "answers again" in line]) == 1
    opened.close()
