"""A digest tells whether a reward still judges the same."""

from __future__ import annotations

from pathlib import Path

from kltune.rewards.fingerprint import digest
from kltune.spec.rewards import RecordedSpec

SPEC = RecordedSpec(recorded="a.csv")


def test_it_follows_the_section_and_the_files(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("1")
    first = digest(SPEC, path)
    assert first == digest(SPEC, path)
    assert first != digest(SPEC)
    assert first != digest(SPEC.model_copy(update={"missing": 0.0}), path)
    path.write_text("2")
    assert first != digest(SPEC, path)


def test_what_changes_no_score_can_be_left_out() -> None:
    other = SPEC.model_copy(update={"recorded": "b.csv"})
    assert digest(SPEC, leave_out=("recorded",)) == digest(other, leave_out=("recorded",))
