from __future__ import annotations

from pathlib import Path

import pytest
from fake_study import trial, write_study

from kltune.launch.transfer_subjects import read_subjects
from kltune.trial.outcome import StopReason

EVALUATIONS = 9


def study(folder: Path) -> Path:
    humped = [0.2, 0.4, 0.9, 1.4, 0.9, 0.5, 0.2, 0.0, -0.3]
    rising = [0.1 * n for n in range(EVALUATIONS)]
    trials = [
        trial(0.1, gold=humped, noise=0.1),
        trial(0.2, gold=rising, noise=0.1),
        trial(0.3, gold=rising[:5], noise=0.1, steps=40, reason=StopReason.PRUNED),
    ]
    return write_study(folder, trials)


def test_a_study_is_read_as_what_is_compared(tmp_path: Path) -> None:
    path = study(tmp_path / "kitchen")
    (found,) = read_subjects([path], [1_000])
    assert (found.study, found.parameters, found.sigma_r) == ("kitchen", 1_000, 0.62)
    humped, rising, pruned = found.trials
    assert len(found.judged) == 2
    assert sum(humped.scores) / len(humped.scores) == pytest.approx(humped.value)
    assert sorted(humped.kl_by_step) == list(range(10, 81, 10))
    # gold that has not turned has no peak to compare
    assert humped.peak_kl == pytest.approx(humped.kl_by_step[30])
    assert rising.peak_kl is None
    assert (pruned.value, pruned.scores, pruned.peak_kl) == (None, (), None)


def test_three_trials_are_too_few_for_the_law(tmp_path: Path) -> None:
    (found,) = read_subjects([study(tmp_path / "kitchen")], [1_000])
    assert found.law_peak.value is None


def test_parameters_are_counted_where_they_are_not_given(tmp_path: Path) -> None:
    (found,) = read_subjects([study(tmp_path / "kitchen")], None)
    assert found.parameters == 351_264
