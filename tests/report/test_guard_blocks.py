from __future__ import annotations

from pathlib import Path

from fake_study import SPEC, trial, write_study
from guarded_case import CUT, guarded

from kltune.report.document import Bullets, Grid, Paragraph
from kltune.report.guard_blocks import guard_blocks
from kltune.report.reckon import account
from kltune.report.rows import read_study
from kltune.trial.outcome import StopReason


def test_the_section_counts_stops_and_warnings_and_quotes_the_guards(tmp_path: Path) -> None:
    said, grid, _, listed, silence = guard_blocks(guarded(tmp_path))
    assert isinstance(said, Paragraph)
    assert isinstance(grid, Grid)
    assert isinstance(listed, Bullets)
    assert isinstance(silence, Paragraph)
    assert said.text.startswith(
        "Guards ended 2 of 4 trials, which spared 80 of 320 planned trial-steps (25 %), and warned of 2."
    )
    assert [row[0] for row in grid.rows] == ["gold_drop", "entropy_collapse", "truncation"]
    assert grid.rows[0][1:6] == ("stop", "2 (1, 2)", "0", "30 – 50", "80")
    assert grid.rows[2][1:6] == ("warn", "0", "2 (2, 3)", "25", "–")
    assert {len(row) for row in grid.rows} == {len(grid.header)}
    assert listed.items[0] == f"Trial 2, step 30 (truncation): {CUT[2]}"
    assert "stalled" in silence.text


def test_many_warnings_are_not_all_listed(tmp_path: Path) -> None:
    blocks = guard_blocks(guarded(tmp_path, [trial(0.1, warnings=[CUT])] * 20))
    (listed,) = [block for block in blocks if isinstance(block, Bullets)]
    assert len(listed.items) == 13
    assert listed.items[-1] == "and 8 more, which report.json holds"


def test_silence_is_said_and_before_any_end_there_is_no_section(tmp_path: Path) -> None:
    said, note = guard_blocks(guarded(tmp_path / "a", [trial(0.1)]))
    assert isinstance(said, Paragraph)
    assert said.text == "No guard said anything of 1 trial."
    assert isinstance(note, Paragraph)
    assert "On and silent: jump, negative_kl" in note.text
    running = guarded(tmp_path / "b", [trial(0.1, reason=None, steps=20)])
    assert guard_blocks(running) == ()
    assert guard_blocks(read_study(write_study(tmp_path / "c", []))) == ()


def test_a_trial_that_diverged_is_an_end_by_a_guard(tmp_path: Path) -> None:
    study = guarded(tmp_path, [trial(0.1, steps=12, reason=StopReason.DIVERGED, detail="nan")])
    said, grid, _ = guard_blocks(study)
    assert isinstance(said, Paragraph)
    assert "Guards ended 1 of 1 trial, which spared 68 of 80" in said.text
    assert isinstance(grid, Grid)
    assert grid.rows[0][:3] == ("diverged", "stop", "1 (0)")


def test_a_guard_that_spoke_at_the_last_step_is_counted_and_said_to_spare_nothing(
    tmp_path: Path,
) -> None:
    late = trial(0.1, reason=StopReason.GOLD_DROP, detail="gold fell")
    early = trial(0.1, steps=40, reason=StopReason.GOLD_DROP, detail="gold fell")
    study = guarded(tmp_path, [late, early, trial(0.2)])
    said, grid, _ = guard_blocks(study)
    assert isinstance(said, Paragraph)
    assert isinstance(grid, Grid)
    assert said.text.startswith("Guards ended 2 of 3 trials, which spared 40 of 240")
    assert "trial 0 counted in, whose guard spoke at the last step and spared nothing" in said.text
    assert grid.rows[0][2] == "2 (0, 1)"
    (cut,) = account(study).steps.cuts
    assert (cut.trials, cut.steps) == (2, 40)


def test_the_silence_of_guards_that_could_not_fire_is_told_apart(tmp_path: Path) -> None:
    trainer = {**SPEC["trainer"], "steps": 12}
    study = guarded(tmp_path, [trial(0.1, steps=12)], trainer=trainer, evaluate={"every": 10})
    _, note = guard_blocks(study)
    assert isinstance(note, Paragraph)
    assert (
        "On and silent: jump, negative_kl, local_kl, proxy_spread. On, but could not" in note.text
    )
    assert "in 12 steps with an evaluation every 10, so their silence says nothing: " in note.text
    assert "; pseudo_explosion, " in note.text
    assert "gold_drop" not in note.text.split("On, but")[0]
