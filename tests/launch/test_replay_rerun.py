"""The order of events is that of the search; tests/launch/test_replay_run.py runs it on a real study."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import fake_study
import pytest
import tiny

from kltune.guard.alarm import Action, Alarm
from kltune.launch import replay_rerun
from kltune.launch.replay import ReplayRequest, plan_replay
from kltune.launch.replay_rerun import Rerun
from kltune.launch.threads import torch_threads
from kltune.metrics.jsonl import read_rows
from kltune.trial.folder import TrialFolder
from kltune.trial.outcome import StopReason, Verdict


@pytest.fixture(autouse=True)
def _one_thread() -> Generator[None]:
    with torch_threads(1):
        yield


@pytest.fixture
def rerun(tmp_path: Path) -> Rerun:
    """The record is of another trial; its steps are 12 and its evaluations at 0, 10 and 12."""
    return rerun_of(tmp_path)


def rerun_of(tmp_path: Path, steps: int | None = None) -> Rerun:
    study = fake_study.write_study(tmp_path / "s", [fake_study.trial(0.1, steps=12)])
    plan = plan_replay(ReplayRequest(study, 0, steps=steps))
    bank = tiny.bank(1, own_forward=True)
    made = Rerun(plan, bank, TrialFolder(study, 0, 1, under="replays"))
    made.start(0.5)
    return made


def never() -> str | None:
    return None


def test_it_evaluates_where_the_search_does_and_where_the_record_did(rerun: Rerun) -> None:
    assert rerun.run(never) == Verdict(StopReason.DONE, "ran 12 steps again")
    steps = [row["step"] for row in read_rows(rerun.folder.path / "evals.jsonl")]
    assert steps == [0, 10, 12]
    assert len(read_rows(rerun.folder.path / "metrics.jsonl")) == 12


def test_where_it_parts_is_said_once(rerun: Rerun, capfd: pytest.CaptureFixture[str]) -> None:
    rerun.run(never)
    told = capfd.readouterr().err
    assert told.count("parts from the record") == 1
    assert "parts from the record at the evaluation after step 0" in told


@pytest.mark.parametrize(
    ("reason", "asked", "run"),
    [
        (StopReason.KL_LIMIT, None, 3),
        (StopReason.KL_LIMIT, 5, 5),
        (StopReason.DIVERGED, 5, 3),
    ],
)
def test_a_stop_ends_it_unless_a_length_is_asked_for_but_what_is_not_finite_always_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: StopReason, asked: int | None, run: int
) -> None:
    alarm = Alarm(Action.STOP, Verdict(reason, "too far"), 3, 2)
    monkeypatch.setattr(
        replay_rerun, "step_alarms", lambda _, history: [alarm] if len(history) >= 3 else []
    )
    rerun = rerun_of(tmp_path, asked)
    verdict = rerun.run(never)
    assert rerun.step == run
    assert (verdict == alarm.verdict) is (run == 3)
    events = [
        row for row in read_rows(rerun.folder.path / "events.jsonl") if row["event"] == "warning"
    ]
    assert [(row["guard"], row["detail"], row["first_step"]) for row in events] == (
        [] if run == 3 else [(reason.value, "too far", 2)]
    )
    judged = {row["step"] for row in read_rows(rerun.folder.path / "evals.jsonl")}
    assert (3 in judged) is (run == 3 and reason is not StopReason.DIVERGED)


def test_a_warning_is_noted_once_and_ends_nothing(
    rerun: Rerun, monkeypatch: pytest.MonkeyPatch
) -> None:
    alarm = Alarm(Action.WARN, Verdict(StopReason.KL_LIMIT, "far"), 1, 1)
    monkeypatch.setattr(replay_rerun, "step_alarms", lambda *_: [alarm])
    assert rerun.run(never).reason is StopReason.DONE
    events = read_rows(rerun.folder.path / "events.jsonl")
    assert [row["event"] for row in events] == ["started", "warning"]


def test_a_length_of_ones_own_is_judged_at_its_end(tmp_path: Path) -> None:
    rerun = rerun_of(tmp_path, 3)
    rerun.run(never)
    steps = [row["step"] for row in read_rows(rerun.folder.path / "evals.jsonl")]
    assert steps == [0, 3]
