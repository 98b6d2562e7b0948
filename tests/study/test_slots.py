"""What a session leaves where its storage is gone, and what it does with an end that came too late."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from kltune.errors import RunError
from kltune.metrics.jsonl import read_json
from kltune.study.asked import Asked
from kltune.study.ledger import Ledger
from kltune.study.loop import run_search
from kltune.trial.record import read_trial
from tests.fake_bank import FakeBank, small_spec
from tests.small_search import SCALE, ledger_of, search, stop_after

SPEC = small_spec(budget={"trials": 1})
CHECKPOINT = "trials/00000/checkpoints/last/slot.json"


def take_away(ledger: Ledger) -> None:
    """From now on the storage answers nothing, and nobody waits for it."""

    def fail(*_args: object) -> None:
        raise OperationalError("SELECT", {}, sqlite3.OperationalError("database is locked"))

    ledger.opened.patience.limit_s = 0
    event.listen(ledger.opened.storage.engine, "before_cursor_execute", fail)


def goes_on_from(folder: Path) -> int:
    bank = FakeBank(1)
    assert search(folder, SPEC, bank).trials_ended == 1
    return 20 - bank.steps_done[0]


def test_a_session_whose_storage_is_gone_saves_what_runs_and_can_go_on(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, SPEC)

    def on_step(number: int, step: int) -> None:
        if step == 8:
            take_away(ledger)

    with pytest.raises(RunError, match="the same command goes on from them") as refused:
        run_search(FakeBank(1, on_step=on_step), ledger, SCALE.sigma)
    assert refused.value.exit_code == 1
    assert read_json(tmp_path / CHECKPOINT)["step"] == 10  # where the storage was needed next
    assert goes_on_from(tmp_path) == 10


def test_a_stop_while_the_storage_is_gone_saves_and_ends_in_order(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = ledger_of(tmp_path, SPEC)

    def on_step(number: int, step: int) -> None:
        if step == 8:
            take_away(ledger)

    stop = stop_after(10**6)
    bank = FakeBank(1, on_step=on_step)

    def should_stop() -> str | None:
        return "stopped by a signal (SIGTERM)" if bank.steps_done.get(0) == 8 else stop()

    end = run_search(bank, ledger, SCALE.sigma, should_stop=should_stop)
    assert end.reason == "stopped by a signal (SIGTERM)"
    assert read_json(tmp_path / CHECKPOINT)["step"] == 8
    assert "trial 0: its end is only on record" in caplog.text
    record = read_trial(tmp_path / "trials/00000")
    assert [e["event"] for e in record.events] == ["started", "ended"]
    assert goes_on_from(tmp_path) == 8
    ends = [e for e in read_trial(tmp_path / "trials/00000").events if e["event"] == "ended"]
    assert [(e["attempt"], e["reason"]) for e in ends] == [(1, "interrupted"), (2, "done")]


def test_a_checkpoint_is_kept_where_the_end_of_the_trial_came_too_late(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, SPEC)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "tell", lambda *_args, **_how: False)  # another one had ended it
        patch.setattr(ledger, "ask", once(ledger))
        run_search(FakeBank(1), ledger, SCALE.sigma)
    assert (tmp_path / CHECKPOINT).exists()


def once(ledger: Ledger) -> Callable[[], Asked | None]:
    """Its first answer, and then none."""
    ask, calls = ledger.ask, itertools.count()
    return lambda: ask() if next(calls) == 0 else None
