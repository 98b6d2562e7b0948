from __future__ import annotations

from pathlib import Path

import optuna
from sqlalchemy import text

from kltune.study.lease import Lease
from kltune.study.storage import HEARTBEAT_S, OpenStudy, open_study
from tests.fake_bank import small_spec


def heartbeats(opened: OpenStudy) -> int:
    with opened.storage.engine.connect() as connection:
        return connection.execute(text("SELECT count(*) FROM trial_heartbeats")).scalar() or 0


def test_heartbeats_are_sent_when_due_and_cost_nothing_in_between(tmp_path: Path) -> None:
    opened = open_study(tmp_path, small_spec())
    opened.optuna_study.add_trial(optuna.trial.create_trial(state=optuna.trial.TrialState.RUNNING))
    now = [0.0]
    lease = Lease(opened, clock=lambda: now[0])
    assert not lease.renew([0])
    assert heartbeats(opened) == 0
    now[0] = HEARTBEAT_S / 2
    assert lease.renew([0])
    assert heartbeats(opened) == 1
    assert not lease.renew([0])
