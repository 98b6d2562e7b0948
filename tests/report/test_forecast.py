from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fake_study import FakeTrial, trial, write_study
from preview_case import forecast_of, same, scored

from kltune.report.forecast import efficiencies, efficiency, optimum_gain, outcome
from kltune.report.rows import StudyRows, TrialRow, read_study


def study_of(folder: Path, *fakes: FakeTrial) -> StudyRows:
    return read_study(write_study(folder, fakes))


def with_points(row: TrialRow, *points: tuple[int, float, float]) -> TrialRow:
    """The row with checkpoints (step, KL per sequence, proxy) and the last one as its peak."""
    found = tuple(
        replace(row.checkpoints[0], step=step, kl_seq=kl, proxy=proxy, proxy_se=0.1)
        for step, kl, proxy in points
    )
    return replace(row, checkpoints=found, peak=found[-1])


def test_a_trial_on_the_frontier_has_an_efficiency_of_1(tmp_path: Path) -> None:
    tilt = forecast_of(scored(same, samples=256)).curve("tilt")
    row = study_of(tmp_path, trial(0.1)).trials[0]
    best = optimum_gain(tilt, 0.5)
    assert best == pytest.approx(1.0, rel=0.1)  # normal rewards: gain² / 2 = KL
    at = efficiency(with_points(row, (0, 0.0, -3.0), (10, 0.5, -3.0 + best)), tilt)
    assert at is not None
    assert at.share == pytest.approx(1.0)
    assert at.share_se == pytest.approx(0.1 / best)
    half = efficiency(with_points(row, (0, 0.0, -3.0), (10, 0.5, -3.0 + best / 2)), tilt)
    assert half is not None
    assert half.share == pytest.approx(0.5)


def test_beyond_what_the_sample_supports_the_furthest_within_counts(tmp_path: Path) -> None:
    tilt = forecast_of(scored(same, samples=256)).curve("tilt")
    row = study_of(tmp_path, trial(0.1)).trials[0]
    far = with_points(row, (0, 0.0, 0.0), (10, 0.3, 0.5), (20, 0.6, 0.9), (30, 9.0, 3.0))
    at = efficiency(far, tilt)
    assert at is not None
    assert (at.step, at.kl_seq) == (20, 0.6)
    assert efficiency(with_points(row, (0, 0.0, 0.0), (10, 9.0, 3.0)), tilt) is None
    assert efficiency(with_points(row, (0, 0.0, 0.0), (10, 0.001, 0.1)), tilt) is None
    assert efficiency(with_points(row, (10, 0.3, 0.5)), tilt) is None  # no start


def test_every_trial_within_reach_is_listed_and_the_median_peak_told(tmp_path: Path) -> None:
    study = study_of(tmp_path, trial(0.1), trial(0.3), trial(0.0))
    forecast = forecast_of(scored(same, samples=256))
    rows = efficiencies(study, forecast)
    assert rows
    assert {row.trial for row in rows} <= {0, 1, 2}
    assert all(0.05 <= row.kl_seq <= forecast.curve("tilt").seen_kl_seq for row in rows)
    came = outcome(study)
    assert came is not None
    assert came.num_trials == 3


def test_a_study_without_trials_has_no_outcome(tmp_path: Path) -> None:
    assert outcome(study_of(tmp_path)) is None


def test_trials_without_a_part_in_the_median_are_counted(tmp_path: Path) -> None:
    study = study_of(tmp_path, trial(0.1), trial(0.3), trial(0.0))
    first, second, third = study.trials
    near = with_points(first, (0, 0.0, 0.0), (10, 0.01, 0.5))
    lost = replace(second, peak=None)
    came = outcome(replace(study, trials=(near, lost, third)))
    assert came is not None
    assert (came.num_trials, came.num_near, came.num_unjudged) == (1, 1, 1)
