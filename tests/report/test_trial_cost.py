"""Seconds and operations of one trial, attempts that were thrown away included."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_costs import PHASES, add_costs, extend
from fake_study import trial, write_study

from kltune.report.trial_cost import Work, seconds_in_slot, trial_cost
from kltune.trial.folder import TrialFolder
from kltune.trial.record import read_trial


def test_a_trial_costs_its_steps_and_its_evaluations(tmp_path: Path) -> None:
    study = write_study(tmp_path, [trial(0.5, steps=20)])
    add_costs(study)
    cost = trial_cost(read_trial(study / "trials" / "00000"))
    assert cost.steps.rows == 20
    assert cost.steps.seconds == pytest.approx(20 * 0.2)
    assert cost.steps.gflop == pytest.approx(20 * 6.0)
    assert cost.evaluations.rows == 3  # steps 0, 10 and 20
    assert cost.evaluations.seconds == pytest.approx(1.5)
    assert cost.redone == Work()
    assert cost.phases == pytest.approx({name: 20 * value for name, value in PHASES.items()})


def test_steps_that_a_later_attempt_runs_again_are_thrown_away_and_still_cost(
    tmp_path: Path,
) -> None:
    study = write_study(tmp_path, [trial(0.5, steps=20)])
    add_costs(study)
    folder = TrialFolder(study, 0, 2)
    folder.append_event("resumed", 10)
    record = read_trial(folder.path)
    assert (len(record.steps), len(record.overtaken_steps)) == (10, 10)
    cost = trial_cost(record)
    assert (cost.steps.rows, cost.redone.rows) == (10, 10)
    assert cost.redone.seconds == pytest.approx(2.0)
    assert cost.evaluations.rows == 3, "of all attempts"
    assert cost.phases is not None
    assert cost.phases["rollout"] == pytest.approx(20 * PHASES["rollout"])


def test_rows_without_seconds_or_operations_are_counted_not_guessed(tmp_path: Path) -> None:
    study = write_study(tmp_path, [trial(0.5, steps=20)])
    cost = trial_cost(read_trial(study / "trials" / "00000"))
    assert (cost.steps.untimed, cost.steps.uncounted, cost.steps.mean_s) == (20, 20, None)
    assert cost.phases is None
    extend(study / "trials/00000/metrics.jsonl", {"time/step_s": None})
    assert trial_cost(read_trial(study / "trials" / "00000")).steps.untimed == 20


def test_work_adds_up_and_its_mean_is_over_rows_that_say() -> None:
    both = Work(10, 2.0, 5.0, untimed=2, uncounted=1) + Work(10, 1.0, 5.0)
    assert both == Work(20, 3.0, 10.0, 2, 1)
    assert both.mean_s == pytest.approx(3.0 / 18)


def test_time_in_a_slot_is_from_first_to_last_row_of_each_attempt() -> None:
    rows = [
        {"attempt": 1, "time": 100.0},
        {"attempt": 1, "time": 110.0},
        {"attempt": 2, "time": 500.0},
        {"attempt": 2, "time": 504.0},
        {"attempt": 2, "time": None},
    ]
    assert seconds_in_slot(rows) == 14.0
