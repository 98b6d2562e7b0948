"""Field case D9: a disk that takes no more ends the sweep by one sentence; the same command goes on when there is room."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from optuna.trial import TrialState

from kltune.errors import DiskError, ExitCode
from kltune.metrics.jsonl import read_rows
from kltune.trial.outcome import StopReason
from kltune.trial.record import read_trial, read_trials
from tests.disk_case import fill, read_only, small_disk
from tests.fake_bank import FakeBank, small_spec
from tests.small_search import ended, optuna_trials, search

SPEC = small_spec(budget={"trials": 4, "retries": 0})


def once(number: int, step: int, act: Callable[[], None]) -> Callable[[int, int], None]:
    def on_step(trial: int, at: int) -> None:
        if (trial, at) == (number, step):
            act()

    return on_step


def made(study: Path) -> Path:
    study.mkdir()
    return study


def goes_on(study: Path, *, met: int, trained_before: int) -> None:
    """The same command again: every trial whole and once, the one that met the fault from its checkpoint."""
    bank = FakeBank(1)
    end = search(study, SPEC, bank)
    assert end.reason is None
    records = read_trials(study)
    assert [r.number for r in records] == [0, 1, 2, 3]
    for record in records:
        assert [row["step"] for row in record.steps] == list(range(1, 21))
        assert record.outcome is not None
        assert record.outcome.verdict.reason is StopReason.DONE
    complete = [t for t in optuna_trials(study, SPEC) if t.state is TrialState.COMPLETE]
    assert len(complete) == 4
    assert bank.steps_done[met] == 20 - trained_before
    assert not (study / ".reserve").exists()


def test_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "3m") as disk:
        study = made(disk / "study")
        bank = FakeBank(1, on_step=once(1, 8, lambda: fill(disk / "ballast")))
        with pytest.raises(DiskError) as caught:
            search(study, SPEC, bank)
        sentence = str(caught.value)
        assert f"{study}/" in sentence
        assert "No space left on device; " in sentence
        assert "are free there): make room, then the same command goes on" in sentence
        assert caught.value.exit_code is ExitCode.RUN_ERROR
        done = read_trial(study / "trials" / "00000")
        assert done.outcome is not None
        assert done.outcome.verdict.reason is StopReason.DONE
        assert len(done.steps) == 20
        met = ended(study)[1]
        assert (met.verdict.reason, met.verdict.detail) == (StopReason.DISK, sentence)
        first, second = optuna_trials(study, SPEC)
        assert (first.state, second.state) == (TrialState.COMPLETE, TrialState.FAIL)
        assert second.user_attrs["kltune.stop_reason"] == "disk"
        (disk / "ballast").unlink()
        goes_on(study, met=1, trained_before=5)


def test_a_disk_that_stays_full_is_met_again_without_a_loss(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "3m") as disk:
        study = made(disk / "study")
        bank = FakeBank(1, on_step=once(1, 8, lambda: fill(disk / "ballast")))
        with pytest.raises(DiskError):
            search(study, SPEC, bank)
        for _ in range(2):
            fill(disk / "more")
            with pytest.raises(DiskError, match="are free there"):
                search(study, SPEC, FakeBank(1))
        for name in ("ballast", "more"):
            (disk / name).unlink()
        goes_on(study, met=1, trained_before=5)


def test_a_full_disk_lets_go_of_the_trials_beside_as_interrupted(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "3m") as disk:
        study = made(disk / "study")
        bank = FakeBank(2, on_step=once(1, 8, lambda: fill(disk / "ballast")))
        with pytest.raises(DiskError):
            search(study, SPEC, bank)
        reasons = sorted(str(o.verdict.reason) for o in ended(study).values())
        assert reasons == ["disk", "interrupted"]


def test_folders_that_became_read_only(tmp_path: Path) -> None:
    study = made(tmp_path / "study")
    search(study, small_spec(budget={"trials": 1, "retries": 0}), FakeBank(1))
    with read_only(study / "trials"), pytest.raises(DiskError, match="Read-only file system"):
        search(study, SPEC, FakeBank(1))
    trials = optuna_trials(study, SPEC)
    assert [t.user_attrs["kltune.stop_reason"] for t in trials] == ["done", "disk"]
    goes_on(study, met=1, trained_before=0)


def test_a_file_replaced_by_a_folder(tmp_path: Path) -> None:
    metrics = tmp_path / "trials" / "00001" / "metrics.jsonl"

    def replace() -> None:
        metrics.rename(metrics.with_suffix(".aside"))
        metrics.mkdir()

    with pytest.raises(DiskError, match=r"00001/metrics\.jsonl: can't be written \(Is a directory"):
        search(tmp_path, SPEC, FakeBank(1, on_step=once(1, 8, replace)))
    assert read_rows(metrics.parent / "events.jsonl")[-1]["reason"] == "disk"
    metrics.rmdir()
    metrics.with_suffix(".aside").rename(metrics)
    goes_on(tmp_path, met=1, trained_before=5)
