"""A path of a study stays in the study."""

from __future__ import annotations

from pathlib import Path

import pytest

from kltune.errors import StudyError
from kltune.trial.inside import refuse_outside


def test_what_lies_in_the_study_passes_whether_there_or_not(tmp_path: Path) -> None:
    (tmp_path / "study").mkdir()
    (tmp_path / "study/a").symlink_to(tmp_path / "study")
    refuse_outside(tmp_path / "study", tmp_path / "study/a/b", tmp_path / "study/none")


@pytest.mark.parametrize("target", ["/etc", "../elsewhere", "../study-too"])
def test_a_link_that_leads_out_is_refused(tmp_path: Path, target: str) -> None:
    (tmp_path / "study").mkdir()
    (tmp_path / "study/a").symlink_to(target)
    with pytest.raises(StudyError, match="leads out of the study's folder"):
        refuse_outside(tmp_path / "study", tmp_path / "study/a/b")


def test_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(StudyError, match="can't be followed"):
        refuse_outside(tmp_path, tmp_path / "a")
