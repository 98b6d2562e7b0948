from __future__ import annotations

from pathlib import Path

import pytest
from fake_study import trial, write_study

from kltune.export.winner import of_trial
from kltune.report.held import held_beta, held_words
from kltune.report.rows import read_study
from kltune.trial.words import number


def test_the_beta_to_hold_is_the_one_that_the_export_writes(tmp_path: Path) -> None:
    steered = trial(
        0.3, penalty="k1-reward", controller="proportional", target_kl=0.05, horizon=640
    )
    study = read_study(write_study(tmp_path, [steered]))
    (row,) = study.trials
    held = held_beta(study, row)
    assert held is not None
    measured = of_trial(study, 0).measured
    assert held.beta == pytest.approx(measured.final_beta)
    assert (held.first_step, held.last_step) == measured.window
    assert row.peak is not None
    assert held.last_step == row.peak.step
    words = held_words(study, row)
    assert f"hold beta at {number(held.beta)}, KL coefficient {number(held.beta)} (" in words


@pytest.mark.parametrize("fake", [trial(0.3), trial(0.0), trial(0.3, controller="schedule")])
def test_nothing_is_to_be_held_where_no_kl_moves_beta(tmp_path: Path, fake: object) -> None:
    study = read_study(write_study(tmp_path, [fake]))  # type: ignore[list-item]
    assert held_words(study, study.trials[0]) == ""
