from __future__ import annotations

from pathlib import Path

from fake_study import trial, typical_trials, write_study

from kltune.metrics.jsonl import encode
from kltune.report.document import Grid, Paragraph
from kltune.report.power_blocks import power_blocks, power_facts
from kltune.report.rows import read_study


def test_the_report_says_what_could_have_been_seen_and_what_is_assumed(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path / "study", typical_trials()))
    blocks = power_blocks(study)
    grid = next(b for b in blocks if isinstance(b, Grid))
    assert len(grid.rows) == 2
    assert all(cell.endswith("gold or more") for row in grid.rows for cell in row[1:])
    text = " ".join(b.text for b in blocks if isinstance(b, Paragraph))
    assert "Seed variance not measured" in text
    facts = power_facts(study)
    assert encode(facts)
    assert {one["scenario"] for one in facts["smallest_difference_gold"]} == {
        "low",
        "middle",
        "high",
    }


def test_measured_seeds_leave_no_range(tmp_path: Path) -> None:
    trials = [trial(beta, seed=seed) for beta in (0.05, 0.2) for seed in range(4)]
    study = read_study(write_study(tmp_path / "study", trials))
    grid = next(b for b in power_blocks(study) if isinstance(b, Grid))
    assert grid.header[1:] == ("smallest difference",)
    (rough,) = power_facts(study)["unknowns"]
    assert "few runs" in rough


def test_before_two_settings_there_is_nothing_to_say(tmp_path: Path) -> None:
    for number, trials in enumerate(([], [trial(0.1)])):
        study = read_study(write_study(tmp_path / str(number), trials))
        assert power_blocks(study) == ()
        assert power_facts(study) == {}
