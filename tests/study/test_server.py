"""Studies on a real PostgreSQL: begun once, found by name, refused in a sentence, passwords unseen."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import socket
import threading
import time
import warnings
from pathlib import Path

import optuna
import pytest
from fake_bank import small_spec
from postgres_case import PASSWORD, Database, postgres
from sqlalchemy.exc import SQLAlchemyError

from kltune.errors import EnvironmentMissingError, KltuneError, StudyError
from kltune.spec.study import StudySpec
from kltune.study import server
from kltune.study.address import Address, resolve_address
from kltune.study.importance import measure_importance
from kltune.study.reading import folder_of, load_study, place_on_server, reading, storage_to_read
from kltune.study.storage import check_study, open_study

__all__ = ["postgres"]  # a fixture
FORK = multiprocessing.get_context("fork")
MEMBERS = pytest.mark.parametrize("count", [3, pytest.param(8, marks=pytest.mark.slow)])


def on(database: Database, **fields: object) -> StudySpec:
    return small_spec(storage={"url": database.url}, **fields)


def begin(path: Path, spec: StudySpec, answers: multiprocessing.Queue[str]) -> None:
    warnings.simplefilter("ignore")
    try:
        opened = open_study(path, spec)
        opened.decide(lambda: opened.optuna_study.enqueue_trial({}))
        opened.close()
        answers.put("")
    except BaseException as error:
        answers.put(repr(error))
        raise


@MEMBERS
def test_members_that_begin_one_study_at_once_on_a_fresh_server_begin_one(
    tmp_path: Path, count: int, postgres: Database
) -> None:
    answers: multiprocessing.Queue[str] = FORK.Queue()
    members = [
        FORK.Process(target=begin, args=(tmp_path, on(postgres), answers)) for _ in range(count)
    ]
    for member in members:
        member.start()
    assert [answers.get(timeout=60) for _ in members] == [""] * count
    for member in members:
        member.join()
    assert postgres.ask("SELECT study_name FROM studies") == [("small",)]
    assert postgres.ask("SELECT COUNT(*) FROM trials") == [(count,)]
    assert postgres.ask("SELECT COUNT(*) FROM alembic_version") == [(1,)]
    assert {path.name for path in tmp_path.iterdir()} == {"storage.json"}


@MEMBERS
def test_so_do_members_in_one_folder_without_a_server(tmp_path: Path, count: int) -> None:
    answers: multiprocessing.Queue[str] = FORK.Queue()
    members = [
        FORK.Process(target=begin, args=(tmp_path, small_spec(), answers)) for _ in range(count)
    ]
    for member in members:
        member.start()
    assert [answers.get(timeout=60) for _ in members] == [""] * count
    for member in members:
        member.join()
    assert [t.number for t in load_study(tmp_path).get_trials()] == list(range(count))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_another_optuna_that_makes_the_tables_at_the_same_time_does_no_harm(
    tmp_path: Path, postgres: Database
) -> None:
    url = postgres.url.replace("postgresql:", "postgresql+psycopg:")

    def make() -> None:
        try:
            optuna.storages.RDBStorage(url).engine.dispose()
        except (RuntimeError, SQLAlchemyError):  # it knows no turn, and may lose the race itself
            return

    others = [threading.Thread(target=make) for _ in range(3)]
    for other in others:
        other.start()
    opened = open_study(tmp_path, on(postgres))
    for other in others:
        other.join()
    opened.optuna_study.enqueue_trial({})
    assert len(opened.optuna_study.get_trials()) == 1
    opened.close()
    gc.collect()  # Optuna's own that failed closed nothing


def test_several_studies_in_one_database_are_each_found_by_their_folder(
    tmp_path: Path, postgres: Database
) -> None:
    for name in ("one", "two", "three"):
        (tmp_path / name).mkdir()
        opened = open_study(tmp_path / name, on(postgres, name=name))
        opened.optuna_study.set_user_attr("whose", name)
        opened.close()
    for name in ("one", "two", "three"):
        with reading(tmp_path / name) as study:
            assert (study.study_name, study.user_attrs["whose"]) == (name, name)
        assert folder_of(Address(postgres.url, name)) == tmp_path / name
        url, key = place_on_server(tmp_path / name)
        assert [
            s.study_name for s in storage_to_read(url).get_all_studies() if str(s._study_id) == key
        ] == [name]
    # The folder alone tells, whatever the spec says now.
    opened = open_study(tmp_path / "two", small_spec(name="two"))
    assert opened.optuna_study.user_attrs["whose"] == "two"
    opened.close()
    with pytest.raises(StudyError, match="holds no study 'four'"):
        folder_of(Address(postgres.url, "four"))


def test_a_study_of_the_same_name_from_another_folder_is_refused_and_left_alone(
    tmp_path: Path, postgres: Database
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    open_study(tmp_path / "a", on(postgres)).close()
    for look in (check_study, open_study):
        with pytest.raises(StudyError, match="begun in another folder"):
            look(tmp_path / "b", on(postgres))
    assert list((tmp_path / "b").iterdir()) == []
    # --fresh there, which takes a name of its own
    address = resolve_address(tmp_path / "b", on(postgres), None, {}, fresh="20261130-1")
    open_study(tmp_path / "b", on(postgres), address).close()
    assert postgres.ask("SELECT study_name FROM studies ORDER BY 1") == [
        ("small",),
        ("small.20261130-1",),
    ]


def test_a_moved_folder_goes_on_and_the_server_learns_where_it_is(
    tmp_path: Path, postgres: Database
) -> None:
    (tmp_path / "a").mkdir()
    open_study(tmp_path / "a", on(postgres)).close()
    (tmp_path / "a").rename(tmp_path / "b")
    open_study(tmp_path / "b", on(postgres)).close()
    assert folder_of(Address(postgres.url, "small")) == tmp_path / "b"


def test_another_spec_is_refused_naming_what_differs(tmp_path: Path, postgres: Database) -> None:
    open_study(tmp_path, on(postgres)).close()
    for look in (check_study, open_study):
        with pytest.raises(StudyError, match="seed: 0 in the study, 7 now"):
            look(tmp_path, on(postgres, seed=7))
    check_study(tmp_path, small_spec())  # where it is kept is no part of a trial


def test_a_record_whose_study_is_gone_from_the_server_is_not_gone_on_with(
    tmp_path: Path, postgres: Database
) -> None:
    opened = open_study(tmp_path, on(postgres))
    opened.storage.delete_study(opened.optuna_study._study_id)
    opened.close()
    open_study(tmp_path, on(postgres)).close()  # nothing was recorded: begun again
    opened = open_study(tmp_path, on(postgres))
    opened.storage.delete_study(opened.optuna_study._study_id)
    opened.close()
    (tmp_path / "trials" / "00000").mkdir(parents=True)
    for look in (check_study, open_study):
        with pytest.raises(StudyError, match="no longer holds its study 'small'"):
            look(tmp_path, on(postgres))


def test_tables_of_another_optuna_are_refused_with_the_upgrade_command_and_left_alone(
    tmp_path: Path, postgres: Database
) -> None:  # field case B22
    open_study(tmp_path, on(postgres)).close()
    postgres.ask("UPDATE alembic_version SET version_num = 'v2.4.0.a'")
    for look in (check_study, open_study):
        with pytest.raises(StudyError, match="optuna storage upgrade --storage") as refused:
            look(tmp_path, on(postgres))
        assert f"'{postgres.url.replace('postgresql:', 'postgresql+psycopg:')}'" in str(
            refused.value
        )
    assert postgres.ask("SELECT version_num FROM alembic_version") == [("v2.4.0.a",)]


def test_the_database_of_another_program_is_refused_and_left_alone(
    tmp_path: Path, postgres: Database
) -> None:
    postgres.ask("CREATE TABLE alembic_version (version_num VARCHAR(32))")
    postgres.ask("INSERT INTO alembic_version VALUES ('f9a7c2e81d04')")
    with pytest.raises(StudyError, match="belongs to another program"):
        open_study(tmp_path, on(postgres))
    tables = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'public'"
    assert postgres.ask(tables) == [(1,)]


def test_half_made_tables_of_one_that_died_are_completed(
    tmp_path: Path, postgres: Database
) -> None:
    postgres.ask(
        "CREATE TABLE studies (study_id SERIAL PRIMARY KEY, study_name VARCHAR(512) NOT NULL UNIQUE)"
    )
    opened = open_study(tmp_path, on(postgres))
    opened.optuna_study.enqueue_trial({})
    opened.close()
    assert postgres.ask("SELECT COUNT(*) FROM alembic_version") == [(1,)]


def test_looking_makes_nothing(tmp_path: Path, postgres: Database) -> None:
    check_study(tmp_path, on(postgres))
    assert list(tmp_path.iterdir()) == []
    tables = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'public'"
    assert postgres.ask(tables) == [(0,)]


def test_a_password_comes_by_the_environment_and_is_shown_nowhere(
    tmp_path: Path,
    postgres: Database,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from urllib.parse import quote

    caplog.set_level(logging.DEBUG)
    spec = small_spec(storage={"url": postgres.guarded_url})
    with pytest.raises(EnvironmentMissingError, match="PGPASSWORD") as refused:
        open_study(tmp_path, spec)
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    open_study(tmp_path, spec).close()
    monkeypatch.delenv("PGPASSWORD")

    def secret(password: str) -> str:
        return postgres.guarded_url.replace("guarded@", f"guarded:{quote(password, safe='')}@")

    monkeypatch.setenv("KLTUNE_STORAGE", secret("wr0ng{x}/@%"))
    with pytest.raises(EnvironmentMissingError, match="password authentication failed") as wrong:
        open_study(tmp_path, spec)
    monkeypatch.setenv("KLTUNE_STORAGE", secret(PASSWORD))
    opened = open_study(tmp_path, spec)
    shown = [repr(opened), str(opened.address), repr(opened.address), caplog.text]
    shown += [(tmp_path / "storage.json").read_text(encoding="utf-8")]
    for error in (refused.value, wrong.value):
        shown += [str(error), repr(error), repr(error.__cause__)]
    opened.close()
    for text in shown:
        assert PASSWORD not in text
        assert quote(PASSWORD, safe="") not in text
        assert "wr0ng" not in text
    pgpass = tmp_path / "pgpass"
    pgpass.write_text(f"*:*:*:guarded:{PASSWORD}\n", encoding="utf-8")
    pgpass.chmod(0o600)
    monkeypatch.delenv("KLTUNE_STORAGE")
    monkeypatch.setenv("PGPASSFILE", str(pgpass))
    open_study(tmp_path, spec).close()


def test_a_server_that_is_not_there_is_one_sentence_within_ten_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf = socket.socket()
    deaf.bind(("127.0.0.1", 0))
    deaf.listen()  # takes the connection and never says a word
    nobody = socket.socket()
    nobody.bind(("127.0.0.1", 0))  # refuses
    places = (f"127.0.0.1:{s.getsockname()[1]}" for s in (deaf, nobody))
    for place in (*places, "no-such-host.invalid"):
        spec = small_spec(storage={"url": f"postgresql://ann@{place}/kl"})
        for look in (open_study, check_study):
            before = time.monotonic()
            with pytest.raises(EnvironmentMissingError) as refused:
                look(tmp_path, spec)
            assert time.monotonic() - before < 10
            assert refused.value.exit_code == 5
            assert "\n" not in str(refused.value)
            assert place in str(refused.value)
    assert list(tmp_path.iterdir()) == []
    deaf.close()
    nobody.close()


def test_a_missing_driver_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for kind, extra in (("postgresql", "postgres"), ("mysql", "mysql")):
        spec = small_spec(storage={"url": f"{kind}://ann@db/kl"})
        with pytest.raises(EnvironmentMissingError, match=rf"pip install 'kltune\[{extra}\]'"):
            open_study(tmp_path, spec)


def test_a_report_of_a_study_whose_server_is_away_says_so(
    tmp_path: Path, postgres: Database
) -> None:
    open_study(tmp_path, on(postgres)).close()
    text = (tmp_path / "storage.json").read_text(encoding="utf-8")
    assert "server" not in (measure_importance(tmp_path).unavailable or "")
    port = str(postgres.server.port)
    (tmp_path / "storage.json").write_text(text.replace(port, "9"), encoding="utf-8")
    found = measure_importance(tmp_path).unavailable or ""
    assert "server can't be used from here" in found
    assert "127.0.0.1" not in found


def test_fifty_workers_leave_room_on_a_server_for_a_hundred(
    tmp_path: Path, postgres: Database
) -> None:
    opened = [open_study(tmp_path, on(postgres)) for _ in range(5)]
    for one in opened:
        with one.turn():
            one.optuna_study.set_user_attr("x", 1)
    (count,) = postgres.ask(
        "SELECT COUNT(*) FROM pg_stat_activity WHERE application_name = 'kltune'"
    )[0]
    assert count == 5
    for one in opened:
        one.close()


def test_what_the_driver_is_told_keeps_to_what_the_address_says() -> None:
    address = Address("postgresql://db/kl?connect_timeout=2", "x")
    assert "connect_timeout" not in server._settings(address)
    assert server._settings(Address("mysql://db/kl", "x"))["connect_timeout"] < 5
    assert server.driver_url(Address("postgres://db/kl", "x")) == "postgresql+psycopg://db/kl"
    assert server.driver_url(Address("mariadb://db/kl", "x")) == "mysql+pymysql://db/kl"
    assert issubclass(EnvironmentMissingError, KltuneError)
    assert os.environ.get("KLTUNE_STORAGE") is None


def _answers(monkeypatch: pytest.MonkeyPatch, *words: str | None) -> list[str | None]:
    """What the server says each time that it is asked; none: it is there."""
    left = list(words)

    def ask(address: Address) -> None:
        found = left.pop(0)
        if found is not None:
            raise EnvironmentMissingError(found)

    monkeypatch.setattr(server, "check_reachable", ask)
    monkeypatch.setattr(server, "_LOOK_S", 0.01)
    return left


_THERE = Address("postgresql://u@h/db", "study")


def test_a_server_that_restarts_is_waited_for_and_it_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left = _answers(
        monkeypatch,
        "terminating connection due to administrator command",
        "connection refused",
        "the database system is starting up",
        None,
    )
    server.await_restart(_THERE)
    assert left == []
    assert len(caplog.records) == 1


def test_one_that_nobody_answers_for_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    left = _answers(monkeypatch, "connection refused", None)
    with pytest.raises(EnvironmentMissingError, match="refused"):
        server.await_restart(_THERE)
    assert left == [None]


def test_one_that_does_not_come_back_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    _answers(monkeypatch, "is shutting down", *["connection refused"] * 1000)
    with pytest.raises(EnvironmentMissingError, match="refused"):
        server.await_restart(_THERE, patience_s=0.1)
