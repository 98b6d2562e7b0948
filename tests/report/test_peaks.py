"""Where gold peaked in each trial, among the steps that may be chosen; the recommendation stops there."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_study import FakeTrial, trial, typical_trials, write_study

from kltune.errors import RunError
from kltune.report.build import build_report
from kltune.report.peaks import find_peaks, trial_peak
from kltune.report.recommend import Recommendation, recommend
from kltune.report.rows import StudyRows, read_study

HUMP = (0.1, 0.5, 1.2, 0.9, 0.4, 0.2, 0.1, 0.1, 0.1)


def read(folder: Path, *fakes: FakeTrial, **spec: object) -> StudyRows:
    return read_study(write_study(folder, fakes, **spec))  # type: ignore[arg-type]


def test_a_step_beyond_a_limit_of_another_gold_is_no_peak(tmp_path: Path) -> None:
    held = (0.9, 0.9, 0.5, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9)
    fake = trial(0.2, gold=HUMP, others={"retention": held}, noise=0.05)
    spec = {"task": {"builtin": "kitchen", "golds": ["retention"]}}
    for also, step in (({}, 20), ({"min": 0.8}, 30)):
        objective = {"kl_limit": 5.0, "also": {"retention": also}}
        study = read(tmp_path / str(step), fake, objective=objective, **spec)
        found = trial_peak(study, study.trials[0])
        assert found is not None
        assert (found.peak.step, found.is_feasible) == (step, True)


def test_a_trial_without_an_evaluation_has_none(tmp_path: Path) -> None:
    study = read(tmp_path, trial(0.1, steps=0, reason=None), trial(0.2, gold=HUMP))
    assert list(find_peaks(study)) == [1]


def test_the_recommendation_stops_where_its_peak_can_not_be_told_from_other_steps(
    tmp_path: Path,
) -> None:
    study = read_study(write_study(tmp_path, typical_trials()))
    answer = recommend(study)
    assert isinstance(answer, Recommendation)
    found = trial_peak(study, answer.best)
    assert found is not None
    window = (answer.plateau.first_step, answer.plateau.last_step)
    assert window == (found.peak.first_step, found.peak.last_step)


def test_a_report_that_can_not_be_written_is_said_in_one_sentence(tmp_path: Path) -> None:
    path = write_study(tmp_path, typical_trials()[:2])
    (path / "report.html").mkdir()  # in its way, as a read-only folder would be
    with pytest.raises(RunError, match="the report can't be written there"):
        build_report(path)
