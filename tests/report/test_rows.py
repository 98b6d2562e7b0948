from __future__ import annotations

import dataclasses
import tracemalloc
from pathlib import Path

import pytest
from fake_study import trial, write_study

from kltune.errors import StudyError
from kltune.report.rows import read_study
from kltune.trial.outcome import StopReason, TrialState


def test_a_folder_without_a_resolved_spec_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"resolved\.json"):
        read_study(tmp_path)


def test_a_study_without_trials_has_no_rows(tmp_path: Path) -> None:
    assert read_study(write_study(tmp_path, [])).trials == ()


def test_the_peak_is_the_checkpoint_that_the_outcome_names(tmp_path: Path) -> None:
    (row,) = read_study(write_study(tmp_path, [trial(0.1)])).trials
    assert row.outcome is not None
    assert row.peak is not None
    assert row.peak.step == row.outcome.best_step
    assert row.start is not None
    assert row.start.step == 0
    assert row.final is not None
    assert row.final.step == 80


def test_the_peak_of_a_trial_that_falls_is_its_second_checkpoint(tmp_path: Path) -> None:
    # field case E5
    fake = trial(0.1, gold=(0.4, 0.5, 0.6, 0.5, 0.4), steps=40, reason=None)
    (row,) = read_study(write_study(tmp_path, [fake])).trials
    assert row.state is TrialState.RUNNING
    assert row.peak is not None
    assert row.peak.step == 20


def test_a_running_trial_counts_its_recorded_steps(tmp_path: Path) -> None:
    (row,) = read_study(write_study(tmp_path, [trial(0.1, steps=23, reason=None)])).trials
    assert row.steps_run == 23
    assert row.value is None
    assert not row.is_candidate


def test_a_pruned_trial_is_no_candidate_however_good(tmp_path: Path) -> None:
    fake = trial(0.1, reason=StopReason.PRUNED, steps=20, gold=(0.9, 0.9, 0.9))
    (row,) = read_study(write_study(tmp_path, [fake])).trials
    assert row.state is TrialState.PRUNED
    assert row.outcome is not None
    told = dataclasses.replace(row.outcome, value=0.9, is_feasible=True)
    assert not dataclasses.replace(row, outcome=told).is_candidate


def test_time_in_slots_is_the_span_of_the_rows(tmp_path: Path) -> None:
    (row,) = read_study(write_study(tmp_path, [trial(0.1)])).trials
    assert row.seconds == pytest.approx(80 * 0.24)


def test_gold_final_is_the_mean_of_the_last_two_evaluations_after_step_0(tmp_path: Path) -> None:
    gold = (0.2, *[0.5] * 6, 0.6, 0.8)
    (row,) = read_study(write_study(tmp_path, [trial(0.1, gold=gold)])).trials
    assert row.gold_final == pytest.approx(0.7)
    assert row.final is not None
    assert row.final.gold == pytest.approx(0.8)


def scratch_memory(study: Path) -> int:
    """Most bytes that reading held beyond what it returned."""
    read_study(study)  # imports and caches
    tracemalloc.start()
    try:
        rows = read_study(study)
        kept, most = tracemalloc.get_traced_memory()
        assert rows.trials
    finally:
        tracemalloc.stop()
    return most - kept


def test_raw_rows_of_one_trial_at_a_time_are_in_memory(tmp_path: Path) -> None:
    few = scratch_memory(write_study(tmp_path / "few", [trial(0.1)] * 2))
    many = scratch_memory(write_study(tmp_path / "many", [trial(0.1)] * 12))
    assert many < 2 * few
