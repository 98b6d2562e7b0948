"""The study that is prepared for a GPU: its script runs from end to end on the built-in model."""

from __future__ import annotations

from pathlib import Path

import pytest
from studies_case import STUDIES, load_script, run_small

NAME = "2026-11-30-smollm2-penalties"


def test_it_says_that_it_was_not_run_and_holds_no_result() -> None:
    folder = STUDIES / NAME
    assert "not yet run" in (folder / "README.md").read_text(encoding="utf-8")
    tables = ("results.json", "runs.csv", "machine.json")
    assert [name for name in tables if (folder / name).exists()] == []


def test_its_size_is_what_the_page_says() -> None:
    blocks = load_script(NAME).STUDY.blocks(False, Path()).values()
    assert sum(len(block.arms) * len(block.seeds) for block in blocks) == 56
    assert [block.set["trainer.steps"] for block in blocks] == [40]


@pytest.mark.slow
def test_the_script_runs(tmp_path: Path) -> None:
    found = run_small(NAME, tmp_path)
    assert found["runs"] == 6
    assert set(found["end_minus_none"]) == {"k1-reward 0.15", "k1-loss 0.15"}
    assert (tmp_path / "runs.csv").is_file()
