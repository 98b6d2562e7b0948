from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from spec_files import adaptive, minimal, write

from kltune.check.study import controller_line, spec_line
from kltune.grade import Grade
from kltune.spec.load import load_spec
from kltune.spec.study import StudySpec


def study(folder: Path, spec: dict[str, Any]) -> StudySpec:
    """Of 80 steps, in which every guard has time to fire."""
    longer = spec | {"trainer": spec["trainer"] | {"steps": 80}}
    return load_spec(write(folder, longer)).spec


def test_an_ordinary_spec_passes(tmp_path: Path) -> None:
    assert spec_line(study(tmp_path, minimal())).grade is Grade.PASS
    line = controller_line(study(tmp_path, minimal()))
    assert (line.grade, line.shown) == (Grade.PASS, "Beta stays fixed in every trial.")


def test_a_controller_that_moves_is_named(tmp_path: Path) -> None:
    line = controller_line(study(tmp_path, adaptive()))
    assert line.grade is Grade.PASS
    assert "proportional can" in line.shown


@pytest.mark.parametrize(
    ("horizon", "word"), [({"value": 10**6}, "inert"), ({"value": 2}, "swings")]
)
def test_a_controller_that_is_inert_or_must_swing_warns(
    tmp_path: Path, horizon: dict[str, float], word: str
) -> None:
    spec = adaptive()
    spec["search"]["horizon"] = {**horizon, "when": {"controller": "proportional"}}
    loaded = study(tmp_path, spec)
    line = controller_line(loaded)
    assert line.grade is Grade.WARN
    assert word in line.shown
    assert line.remedy
    assert spec_line(loaded).grade is Grade.PASS, "it has a line of its own"


def test_a_limit_that_no_guard_reaches_warns(tmp_path: Path) -> None:
    spec = minimal() | {"guards": {"kl": {"limit": 0.5, "patience": 90}}}
    line = spec_line(study(tmp_path, spec))
    assert line.grade is Grade.WARN
    assert "guards.kl.patience" in line.shown
    assert line.numbers["num_doubts"] == 1
