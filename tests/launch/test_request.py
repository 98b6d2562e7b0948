"""Flags win over --set, --set over the file."""

from __future__ import annotations

from pathlib import Path

from spec_files import minimal, write

from kltune.launch.request import SweepRequest


def test_flags_win_over_overrides_and_overrides_over_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, minimal())
    overrides = ("budget.trials=7", "trainer.steps=9")
    request = SweepRequest(path, trials=5, slots=4, workers=2, seed=11, overrides=overrides)
    spec = request.load().spec
    assert (spec.budget.trials, spec.budget.slots, spec.seed) == (5, 4, 11)
    assert spec.budget.workers == 2
    assert spec.trainer.steps == 9


def test_the_study_lives_under_studies_unless_told_otherwise(tmp_path: Path) -> None:
    request = SweepRequest(write(tmp_path, minimal()))
    assert request.folder(request.load()) == Path("studies/small")
    elsewhere = SweepRequest(request.spec_path, study_path=tmp_path / "a")
    assert elsewhere.folder(elsewhere.load()) == tmp_path / "a"
