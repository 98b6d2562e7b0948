"""A checkpoint that can't be used never ends a sweep: the trial goes on from the one before, or anew, and says so."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import tiny

from kltune.metrics.jsonl import read_rows
from kltune.spec.trial import BetaUnit, KLUnit, TrialSpec
from kltune.study.resume import start_or_resume
from kltune.trainer.bank import Bank
from kltune.trial.folder import TrialFolder

SETTING = tiny.trial(seed=3)


@pytest.fixture
def folder(tmp_path: Path) -> TrialFolder:
    """Attempt 1: checkpoints at steps 1 (kept as the one before) and 2, and the record of both steps."""
    bank, first = tiny.bank(1), TrialFolder(tmp_path, 7, 1)
    config(first, SETTING)
    bank.admit(0, 7, SETTING, None)
    first.append_event("started", 0)
    last = first.last_checkpoint
    for step in (1, 2):
        if step == 2:
            shutil.copytree(last, last.with_name("kept"))
        (metrics,) = bank.train_step()
        first.append_step(metrics)
        bank.save_checkpoint(0, last)
    last.with_name("kept").rename(last.with_name("last.old"))
    return TrialFolder(tmp_path, 7, 2)


def config(folder: TrialFolder, setting: TrialSpec) -> None:
    folder.write_config(setting, "tpe", 0.5, KLUnit.TOKEN, BetaUnit.REWARD)


def resumed(bank: Bank, folder: TrialFolder, setting: TrialSpec = SETTING) -> int:
    config(folder, setting)
    return start_or_resume(bank, 0, setting, folder, is_again=True)


def told(folder: TrialFolder) -> list[str]:
    events = read_rows(folder.path / "events.jsonl")
    return [e["detail"] for e in events if e["event"] == "checkpoint_unusable"]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def test_a_sound_checkpoint_is_gone_on_from(folder: TrialFolder) -> None:
    assert resumed(tiny.bank(1), folder) == 2
    assert told(folder) == []


def test_a_first_attempt_starts_anew_whatever_lies_there(folder: TrialFolder) -> None:
    assert start_or_resume(tiny.bank(1), 0, SETTING, folder, is_again=False) == 0


def test_a_cut_checkpoint_makes_way_for_the_one_before(
    folder: TrialFolder, caplog: pytest.LogCaptureFixture
) -> None:
    cut(folder.last_checkpoint / "slot.safetensors")
    assert resumed(tiny.bank(1), folder) == 1
    (detail,) = told(folder)
    assert detail.startswith(f"checkpoint {folder.last_checkpoint} can't be read: ")
    assert "trial 7: checkpoint" in caplog.text
    assert "trying the one before" in caplog.text


def test_where_none_can_be_read_it_starts_at_step_0(
    folder: TrialFolder, caplog: pytest.LogCaptureFixture
) -> None:
    for path in folder.checkpoints_to_resume():
        cut(path / "slot.json")
    bank = tiny.bank(1)
    assert resumed(bank, folder) == 0
    assert len(told(folder)) == 2
    assert "starting at step 0" in caplog.text
    bank.train_step()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": 99}, "has schema 99, this version reads 2"),
        ({"base": "0123456789abcdef"}, "was trained on another base model"),
    ],
)
def test_another_schema_and_another_base_are_named(
    folder: TrialFolder, change: dict[str, object], words: str
) -> None:
    notes = folder.last_checkpoint / "slot.json"
    notes.write_text(json.dumps({**json.loads(notes.read_text()), **change}))
    assert resumed(tiny.bank(1), folder) == 1
    assert words in told(folder)[0]


def test_really_another_base_is_seen(folder: TrialFolder) -> None:
    assert resumed(tiny.bank(1, seed=1), folder) == 0
    assert all("was trained on another base model" in detail for detail in told(folder))


def test_another_setting_is_named(folder: TrialFolder) -> None:
    other = SETTING.model_copy(update={"beta": 0.7})
    assert resumed(tiny.bank(1), folder, other) == 0
    assert told(folder)[0].endswith("is of another setting: beta 0.1, not 0.7")


def test_a_record_with_a_hole_is_not_continued(folder: TrialFolder) -> None:
    rows = (folder.path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (folder.path / "metrics.jsonl").write_bytes(rows[0])  # a power failure took the second
    bank = tiny.bank(1)
    assert resumed(bank, folder) == 1
    assert "its record lacks 1 of the steps before it (2)" in told(folder)[0]
    assert bank.train_step()[0].step == 2


def test_what_a_crash_left_goes_when_the_trial_goes_on(folder: TrialFolder) -> None:
    checkpoints = folder.last_checkpoint.parent
    for name in ("last.new", "best.new", "best.old", "best"):
        (checkpoints / name).mkdir()
    (folder.path / ".config.json.123.tmp").write_text("{")
    assert resumed(tiny.bank(1), folder) == 2
    assert sorted(p.name for p in checkpoints.iterdir()) == ["best", "last", "last.old"]
    assert not list(folder.path.glob(".*"))
    folder.drop_last()
    assert [p.name for p in checkpoints.iterdir()] == ["best"]
