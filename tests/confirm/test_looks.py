"""The ledger of looks only grows, and says how often."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from kltune.confirm.looks import (
    FILE,
    Look,
    looks_words,
    note_look,
    other_designs,
    read_looks,
    repeated_words,
    times,
)

LOOK = Look(("kltune", "confirm", "s"), "trial 4 @ step 20", (5, 6), "d" * 64, 640, 640)


def test_looks_are_appended_and_counted(tmp_path: Path) -> None:
    assert looks_words(tmp_path) == "The test prompts have not been looked at."
    now = datetime(2026, 1, 2, tzinfo=UTC)
    assert note_look(tmp_path, LOOK, now) == 1
    first = (tmp_path / FILE).read_text()
    assert note_look(tmp_path, replace(LOOK, new_completions=0)) == 2
    assert (tmp_path / FILE).read_text().startswith(first)
    row = read_looks(tmp_path)[0]
    assert row["time"] == "2026-01-02T00:00:00+00:00"
    assert row["command"] == ["kltune", "confirm", "s"]
    assert row["digest"] == "d" * 64
    assert row["completions"] == 640
    assert "2 times, 1 of them with new completions" in looks_words(tmp_path)


def test_only_looks_at_the_same_prompts_with_another_design_count_as_others(
    tmp_path: Path,
) -> None:
    for look in (LOOK, replace(LOOK, seeds=(5, 6, 7)), replace(LOOK, digest="e" * 64, what="x")):
        note_look(tmp_path, look)
    assert other_designs(tmp_path, LOOK) == 1
    assert other_designs(tmp_path, replace(LOOK, what="trial 9 @ step 20")) == 2
    assert "looked at 2 times before" in repeated_words(2)
    assert times(1) == "once"
