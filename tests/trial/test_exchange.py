"""Two members without a shared folder: what one ran the other goes on with; an outage loses nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kltune.metrics.jsonl import read_rows
from kltune.spec.trial import BetaUnit, KLUnit, TrialSpec
from kltune.trial.exchange import ASIDE, Exchange
from kltune.trial.folder import TrialFolder
from kltune.trial.remote import Remote, RemoteTroubleError

SETTING = TrialSpec(beta=0.0, learning_rate=1e-3)


def member(tmp_path: Path, name: str) -> Exchange:
    study = tmp_path / name
    study.mkdir(exist_ok=True)
    return Exchange(Remote(f"file://{tmp_path}/far"), study, "s", first_wait_s=0.01)


def run(study: Path, attempt: int, steps: range, number: int = 0) -> TrialFolder:
    folder = TrialFolder(study, number, attempt)
    folder.write_config(SETTING, "zero", 0.5, KLUnit.TOKEN, BetaUnit.REWARD)
    folder.append_event("resumed" if steps.start > 1 else "started", steps.start - 1)
    for step in steps:
        folder.append_event("step", step)
    folder.last_checkpoint.mkdir(parents=True, exist_ok=True)
    (folder.last_checkpoint / "slot.json").unlink(missing_ok=True)
    (folder.last_checkpoint / "slot.json").write_text(f"{steps.stop - 1}")
    return folder


def steps_in(study: Path, number: int = 0) -> list[int]:
    rows = read_rows(study / "trials" / f"{number:05d}" / "events.jsonl")
    return [row["step"] for row in rows if row["event"] == "step"]


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end, "did not come to hold"
        time.sleep(0.01)


def test_another_member_goes_on_from_what_the_first_one_sent(tmp_path: Path) -> None:
    one, two = member(tmp_path, "one"), member(tmp_path, "two")
    one.start()
    run(tmp_path / "one", 1, range(1, 6))
    one.notice(0)
    assert one.close() == []
    two.start()
    assert two.bring(0)
    assert steps_in(tmp_path / "two") == [1, 2, 3, 4, 5]
    folder = run(tmp_path / "two", 2, range(6, 11))
    assert not two.bring(0)  # it is its own now
    two.notice(0)
    assert two.close() == []
    lead = member(tmp_path, "one")
    assert lead.bring_all() == [0]
    assert lead.bring_all() == []
    assert steps_in(tmp_path / "one") == list(range(1, 11))
    assert (tmp_path / "one/trials/00000/checkpoints/last/slot.json").read_text() == "10"
    assert folder.path.is_dir()
    assert not (tmp_path / "one" / ASIDE).exists()  # all of it had been sent


def test_an_outage_stops_nothing_and_all_is_sent_when_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = member(tmp_path, "one")
    sent, tries = Remote.send, []

    def refuses(self: Remote, source: Path, name: str) -> None:
        tries.append(name)
        raise RemoteTroubleError("connection refused")

    monkeypatch.setattr(Remote, "send", refuses)
    one.start()
    begun = time.monotonic()
    for number in range(3):
        for end in (3, 6):
            run(tmp_path / "one", 1, range(1, end), number)
            one.notice(number)
    assert time.monotonic() - begun < 5
    until(lambda: len(tries) > 2)
    monkeypatch.setattr(Remote, "send", sent)
    assert one.close() == []
    two = member(tmp_path, "two")
    assert two.bring_all() == [0, 1, 2]
    assert [row for row in caplog.messages if "waits for" in row] != []
    assert sum("waits for" in row for row in caplog.messages) == 1  # said once
    assert list((tmp_path / "one" / ".exchange").glob("*")) == []


def test_an_exit_during_an_outage_is_bounded_and_the_next_session_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(self: Remote, source: Path, name: str) -> None:
        raise RemoteTroubleError("connection refused")

    with monkeypatch.context() as patch:
        patch.setattr(Remote, "send", refuses)
        one = member(tmp_path, "one")
        one.start()
        run(tmp_path / "one", 1, range(1, 6))
        one.notice(0)
        begun = time.monotonic()
        assert one.close(timeout_s=0.3) == [0]
        assert time.monotonic() - begun < 3
    again = member(tmp_path, "one")
    again.start()
    assert again.close() == []
    assert member(tmp_path, "two").bring(0)


def test_an_address_that_is_away_is_waited_for_within_patience(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(self: Remote, folder: str) -> list[str]:
        raise RemoteTroubleError("timed out")

    two = member(tmp_path, "two")
    monkeypatch.setattr(Remote, "names", away)
    begun = time.monotonic()
    assert not two.bring(0, patience_s=0.2)
    assert 0.2 <= time.monotonic() - begun < 5
    assert (
        "trial 0 goes on from what is here, since its record can't be brought: timed out"
        in caplog.text
    )
    begun = time.monotonic()
    assert not two.bring(0, patience_s=60, stop=lambda: "SIGTERM")
    assert time.monotonic() - begun < 5


def test_a_member_that_was_thought_dead_keeps_its_rows_and_overwrites_nothing(
    tmp_path: Path,
) -> None:
    one, two = member(tmp_path, "one"), member(tmp_path, "two")
    one.start()
    two.start()
    run(tmp_path / "one", 1, range(1, 4))
    one.notice(0)
    until(lambda: (tmp_path / "one/trials/00000/exchange.json").exists())
    two.bring(0)
    run(tmp_path / "two", 2, range(4, 7))
    two.notice(0)
    two.close()
    TrialFolder(tmp_path / "one", 0, 1).append_event("step", 99)  # it did not know
    one.notice(0)
    one.close()
    assert one.bring(0)
    assert steps_in(tmp_path / "one") == [1, 2, 3, 4, 5, 6]
    (aside,) = (tmp_path / "one" / ASIDE).iterdir()
    assert read_rows(aside / "events.jsonl")[-1]["step"] == 99


def test_where_the_tracker_is_in_this_copy_stays(tmp_path: Path) -> None:
    one, two = member(tmp_path, "one"), member(tmp_path, "two")
    run(tmp_path / "two", 1, range(1, 2))
    two.start()
    two.close()
    (tmp_path / "two/trials/00000/mlflow.json").write_text("{}")
    one.bring(0)
    run(tmp_path / "one", 2, range(2, 3))
    one.start()
    one.close()
    assert two.bring(0)
    assert (tmp_path / "two/trials/00000/mlflow.json").read_text() == "{}"
    assert not (tmp_path / "one/trials/00000/mlflow.json").exists()


def test_a_stop_is_heeded_while_an_address_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise RemoteTroubleError("connection refused")

    monkeypatch.setattr("kltune.trial.exchange.versions_of", refuses)
    patient = Exchange(Remote(f"file://{tmp_path}/far"), tmp_path, "s", first_wait_s=30.0)
    began = time.monotonic()
    assert not patient.bring(0, stop=lambda: time.monotonic() > began + 0.3 or None)
    assert time.monotonic() - began < 5
