from __future__ import annotations

import time
from pathlib import Path

import pytest
from optuna.trial import TrialState
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from kltune.errors import KltuneError
from kltune.study.lease import LEASE_S, Lease, lease_seconds
from kltune.study.ledger import Ledger
from kltune.study.lives import ATTR_LEASE
from kltune.study.storage import OpenStudy, open_study
from tests.fake_bank import FakeBank, small_spec
from tests.small_search import search


def heartbeats(opened: OpenStudy) -> int:
    with opened.storage.engine.connect() as connection:
        return connection.execute(text("SELECT count(*) FROM trial_heartbeats")).scalar() or 0


def beat(opened: OpenStudy) -> int:
    return opened.optuna_study.get_trials()[0].user_attrs[ATTR_LEASE]["beat"]


def test_each_sign_is_another_than_the_one_before(tmp_path: Path) -> None:
    ledger = Ledger(open_study(tmp_path, small_spec()))
    assert ledger.ask() is not None
    assert heartbeats(ledger.opened) == 1
    signs: list[int] = []
    for _ in range(3):
        ledger.lease.renew()
        signs.append(beat(ledger.opened))
    assert signs == [1, 2, 3]


def test_what_someone_else_ended_is_noticed_and_what_ended_by_itself_is_not(tmp_path: Path) -> None:
    ledger = Ledger(open_study(tmp_path, small_spec()))
    one, other = ledger.ask(), ledger.ask()
    assert one is not None
    assert other is not None
    ledger.opened.optuna_study.tell(one.optuna_trial.number, state=TrialState.FAIL)
    ledger.lease.renew()
    assert ledger.lease.is_lost(one.optuna_trial.number)
    assert not ledger.lease.is_lost(other.optuna_trial.number)
    ledger.lease.drop(one.optuna_trial.number)
    ledger.lease.renew()
    assert not ledger.lease.is_lost(one.optuna_trial.number)


def test_signs_go_on_during_a_step_that_takes_longer_than_a_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KLTUNE_LEASE", "0.2")
    beats: list[int] = []

    def on_step(number: int, step: int) -> None:
        if step == 2:
            until = time.monotonic() + 20
            while time.monotonic() < until and (not beats or beats[-1] < 3):
                time.sleep(0.05)
                beats.append(int(beat_in(tmp_path)))

    search(tmp_path, small_spec(budget={"trials": 1}), FakeBank(1, on_step=on_step))
    assert beats[-1] >= 3


def beat_in(path: Path) -> int:
    opened = open_study(path, small_spec(budget={"trials": 1}))
    opened.storage.remove_session()
    found = beat(opened)
    opened.storage.engine.dispose()
    return found


def test_a_storage_that_is_away_for_a_while_ends_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("KLTUNE_LEASE", "0.05")
    lease = Lease(open_study(tmp_path, small_spec()))
    calls: list[float] = []

    def renew() -> None:
        calls.append(time.monotonic())
        if len(calls) < 4:
            raise OperationalError("SELECT 1", {}, Exception("gone"))

    monkeypatch.setattr(lease, "renew", renew)
    with lease.kept():
        until = time.monotonic() + 20
        while len(calls) < 6 and time.monotonic() < until:
            time.sleep(0.02)
    assert len(calls) >= 6
    assert caplog.text.count("no sign of life could be given") == 1


@pytest.mark.parametrize("given", ["0", "-3", "soon", "inf", "nan"])
def test_a_lease_is_a_number_of_seconds(given: str) -> None:
    with pytest.raises(KltuneError, match=f"KLTUNE_LEASE={given}: not a number of seconds above 0"):
        lease_seconds({"KLTUNE_LEASE": given})


def test_a_lease_lasts_a_minute_unless_the_environment_says_otherwise() -> None:
    assert lease_seconds({}) == LEASE_S == 60
    assert lease_seconds({"KLTUNE_LEASE": "2.5"}) == 2.5
