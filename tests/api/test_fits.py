"""Fitted objects are those that the report speaks of."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_study import trial, typical_trials, write_study

from kltune.api.fits import fit_study
from kltune.report.recommend import recommend
from kltune.report.rows import read_study
from kltune.statistics.law import LawFit
from kltune.statistics.settling import Settling


def test_they_are_the_reports_by_trial(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path / "s", typical_trials()))
    found = fit_study(study, recommend(study))
    judged = [row.number for row in study.trials if row.checkpoints]
    assert list(found.law) == list(found.settling) == judged
    assert all(isinstance(fit, LawFit) for fit in (*found.law.values(), found.pooled_law))
    assert all(isinstance(one, Settling) for one in found.settling.values())
    assert found.frontier.num_trials > 0
    assert {n for group in found.groups for n in group} == {
        row.number for row in study.trials if row.is_candidate
    }
    assert found.peaks[0].checkpoint.step == found.peaks[0].peak.step


def test_the_same_record_gives_the_same_fits(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path / "s", [trial(0.05), trial(0.1), trial(0.3)]))
    first, second = (fit_study(study, recommend(study)) for _ in range(2))
    assert first.groups == second.groups
    assert first.frontier == second.frontier
    assert first.pooled_law.a == pytest.approx(second.pooled_law.a, nan_ok=True)


def test_without_a_database_importance_says_why(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path / "s", [trial(0.05)]))
    found = fit_study(study, recommend(study))
    assert found.importance.shares == {}
    assert found.importance.unavailable == "the folder holds no study.db"
