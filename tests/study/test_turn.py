"""One member decides at a time, over processes, and whoever lost the right writes nothing more."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from fake_bank import small_spec
from optuna.exceptions import StorageInternalError
from postgres_case import Database, postgres

from kltune.errors import RunError, StudyError
from kltune.spec.study import StudySpec
from kltune.study.storage import OpenStudy, open_study
from kltune.study.turn import FileTurn, TurnLostError

__all__ = ["postgres"]  # a fixture
CUT_OFF = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'kltune'"
FORK = multiprocessing.get_context("fork")


def count_up(open_it: Callable[[], OpenStudy], tally: Path, rounds: int, ready: Barrier) -> None:
    opened = open_it()
    ready.wait()
    for _ in range(rounds):
        with opened.turn():
            seen = int(tally.read_text(encoding="ascii"))
            time.sleep(0.002)
            tally.write_text(str(seen + 1), encoding="ascii")
    opened.close()


class Opened:
    """How to open the study, for another process."""

    def __init__(self, path: Path, spec: StudySpec) -> None:
        self.path, self.spec = path, spec

    def __call__(self) -> OpenStudy:
        return open_study(self.path, self.spec)


def hold_for_ever(open_it: Callable[[], OpenStudy], sign: Path) -> None:
    with open_it().turn():
        sign.touch()
        time.sleep(600)


def in_turns(open_it: Opened, tmp_path: Path) -> None:
    open_it().close()
    tally = tmp_path / "tally"
    tally.write_text("0", encoding="ascii")
    ready = FORK.Barrier(3)
    members = [FORK.Process(target=count_up, args=(open_it, tally, 10, ready)) for _ in range(3)]
    for member in members:
        member.start()
    for member in members:
        member.join()
    assert [member.exitcode for member in members] == [0] * 3
    assert tally.read_text(encoding="ascii") == "30"


def held_by_one_that_dies(open_it: Opened, tmp_path: Path) -> None:
    sign = tmp_path / "sign"
    holder = FORK.Process(target=hold_for_ever, args=(open_it, sign))
    holder.start()
    while not sign.exists():
        time.sleep(0.02)
    assert holder.pid is not None
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    opened = open_it()
    before = time.monotonic()
    with opened.turn():
        assert time.monotonic() - before < 5
    opened.close()


def test_members_in_a_folder_take_turns(tmp_path: Path) -> None:
    in_turns(Opened(tmp_path, small_spec()), tmp_path)


def test_members_on_a_server_take_turns(tmp_path: Path, postgres: Database) -> None:
    in_turns(Opened(tmp_path, small_spec(storage={"url": postgres.url})), tmp_path)


def test_the_turn_of_a_killed_member_is_free_at_once(tmp_path: Path) -> None:
    held_by_one_that_dies(Opened(tmp_path, small_spec()), tmp_path)


def test_so_it_is_on_a_server(tmp_path: Path, postgres: Database) -> None:
    held_by_one_that_dies(Opened(tmp_path, small_spec(storage={"url": postgres.url})), tmp_path)


def test_the_same_thread_may_take_it_again_and_another_one_waits(tmp_path: Path) -> None:
    turn, order = FileTurn(tmp_path / ".turn"), list[str]()

    def other() -> None:
        with turn.take():
            order.append("other")

    with turn.take():
        thread = threading.Thread(target=other)
        thread.start()
        with turn.take():
            time.sleep(0.05)
        order.append("own")
    thread.join()
    assert order == ["own", "other"]


def test_who_waits_too_long_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    first, second = (FileTurn(tmp_path / ".turn", limit_s=0.2) for _ in range(2))
    refusal = pytest.raises(RunError, match="held this study's turn")
    with first.take(), refusal as refused, second.take():
        pass
    assert refused.value.exit_code == 1
    with second.take():
        pass


def test_a_folder_that_nobody_may_write_in_is_one_sentence(tmp_path: Path) -> None:
    turn = FileTurn(tmp_path / "absent" / ".turn")
    with pytest.raises(StudyError, match="can't be written in"), turn.take():
        pass


def test_a_member_that_lost_its_connection_writes_nothing_more_in_the_turn(
    tmp_path: Path, postgres: Database
) -> None:
    opened = open_study(tmp_path, small_spec(storage={"url": postgres.url}))
    errors: list[type[BaseException]] = []
    with opened.turn():
        opened.optuna_study.set_user_attr("before", 1)
        postgres.ask(CUT_OFF)
        for key in (
            "after",
            "later",
            "latest",
        ):  # the first finds out, no further one is let through
            try:
                opened.optuna_study.set_user_attr(key, 1)
            except (StorageInternalError, TurnLostError) as error:
                errors.append(type(error))
    assert errors == [StorageInternalError, TurnLostError, TurnLostError]
    assert set(opened.optuna_study.user_attrs) & {"before", "after", "later", "latest"} == {
        "before"
    }
    opened.close()


def test_a_decision_that_was_cut_off_is_made_again_as_a_whole(
    tmp_path: Path, postgres: Database
) -> None:
    opened = open_study(tmp_path, small_spec(storage={"url": postgres.url}))
    seen: list[int] = []

    def decide() -> int:
        seen.append(len(opened.optuna_study.get_trials()))
        opened.optuna_study.enqueue_trial({})
        if len(seen) == 1:
            postgres.ask(CUT_OFF)
        opened.optuna_study.set_user_attr("decided", len(seen))
        return len(seen)

    assert opened.decide(decide) == 2
    assert seen == [0, 1]
    assert opened.optuna_study.user_attrs["decided"] == 2
    opened.close()


def test_a_stopped_holder_loses_the_turn_to_the_others(
    tmp_path: Path, postgres: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kltune.study.turn.STALL_S", 1)
    spec = small_spec(storage={"url": postgres.url})
    first, second = open_study(tmp_path, spec), open_study(tmp_path, spec)
    before = time.monotonic()
    with suppress(TurnLostError), first.turn():
        # It says nothing from here on; the other waits for it, as one on another machine would.
        with second.turn():
            pass
        assert 0.9 < time.monotonic() - before < 10
    first.close()
    second.close()
