from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kltune.launch.status_facts import Standing, read_standing
from kltune.launch.status_pace import pace_of
from kltune.study.holder import Holder
from tests.standing_case import NOW, spec_of, write_study, write_trial

HELD = Holder("held", 7, "kltune sweep", NOW - 100)


def standing(tmp_path: Path, **budget: object) -> Standing:
    """Two of four trials ended, 80 and 40 steps long, one at step 30; 150 steps in 100 s."""
    study = write_study(tmp_path, **budget)
    write_trial(study, 0, ending={}, started=NOW - 90)
    write_trial(study, 1, step=40, ending={"reason": "pruned", "state": "pruned"})
    write_trial(study, 2, step=30, last=NOW - 2)
    found = replace(read_standing(study, lambda: NOW), holder=HELD)
    worked = (80.0, 40.0, 30.0)
    trials = tuple(replace(t, worked=w) for t, w in zip(found.trials, worked, strict=True))
    return replace(found, trials=trials)


def test_a_study_that_nobody_works_in_has_no_pace(tmp_path: Path) -> None:
    assert pace_of(replace(standing(tmp_path), holder=Holder("free"))) is None


def test_what_is_left_takes_as_long_as_what_was_done(tmp_path: Path) -> None:
    pace = pace_of(standing(tmp_path))
    assert pace is not None
    assert pace.steps_per_s == pytest.approx(1.5)
    # Ended trials are 60 steps long on average: 30 of the open one, 60 of the one to come.
    assert pace.left_s == pytest.approx(90 / 1.5)
    assert pace.wall_left_s is None
    assert (pace.quiet_s, pace.is_quiet) == (pytest.approx(2), False)


def test_the_wall_clock_of_the_budget_is_told(tmp_path: Path) -> None:
    pace = pace_of(standing(tmp_path, wall=130))
    assert pace is not None
    assert pace.wall_left_s == pytest.approx(30)


def test_before_the_first_step_nothing_is_promised(tmp_path: Path) -> None:
    found = standing(tmp_path)
    idle = tuple(replace(trial, worked=0.0, last=NOW - 5000) for trial in found.trials)
    pace = pace_of(replace(found, trials=idle))
    assert pace is not None
    assert (pace.steps_per_s, pace.left_s) == (None, None)
    # Rows of an earlier session say nothing about this one, which is 100 s old.
    assert (pace.quiet_s, pace.is_quiet) == (pytest.approx(100), False)
    late = replace(found, trials=idle, now=NOW + 600)
    assert pace_of(late) is not None
    assert pace_of(late).is_quiet  # pyright: ignore[reportOptionalMemberAccess]


def test_a_hang_shows_and_a_slow_model_is_none(tmp_path: Path) -> None:
    found = standing(tmp_path)
    quiet = pace_of(replace(found, now=NOW + 70))
    assert quiet is not None
    assert quiet.is_quiet
    slow = tuple(replace(trial, worked=0.5) for trial in found.trials)  # 1.5 steps in 170 s
    patient = pace_of(replace(found, trials=slow, now=NOW + 70))
    assert patient is not None
    assert not patient.is_quiet


def test_a_full_budget_leaves_only_the_open_trials(tmp_path: Path) -> None:
    found = standing(tmp_path)
    pace = pace_of(replace(found, spec=spec_of(trials=3)))
    assert pace is not None
    assert pace.left_s == pytest.approx(30 / 1.5)


def test_the_time_before_the_first_trial_is_no_pace(tmp_path: Path) -> None:
    found = standing(tmp_path)
    trials = tuple(replace(trial, began=NOW - 30) for trial in found.trials)
    pace = pace_of(replace(found, trials=trials))
    assert pace is not None
    assert pace.steps_per_s == pytest.approx(150 / 30)


def test_before_a_trial_s_worth_of_steps_no_end_is_promised(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    write_trial(study, 0, step=30, last=NOW - 2)
    found = replace(read_standing(study, lambda: NOW), holder=HELD)
    few, enough = (
        pace_of(replace(found, trials=(replace(found.trials[0], worked=w),))) for w in (30.0, 80.0)
    )
    assert few is not None
    assert enough is not None
    assert (few.steps_per_s, few.left_s) == (pytest.approx(0.3), None)
    assert enough.left_s is not None


def test_when_all_trials_are_done_nothing_is_left_to_be_said(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    for number in range(4):
        write_trial(study, number, ending={})
    found = replace(read_standing(study, lambda: NOW), holder=HELD)
    pace = pace_of(replace(found, trials=tuple(replace(t, worked=80.0) for t in found.trials)))
    assert pace is not None
    assert pace.left_s is None
