from __future__ import annotations

from pathlib import Path

from fake_study import trial, write_study

from kltune.report.document import Grid, Paragraph
from kltune.report.ranking import rank
from kltune.report.rows import StudyRows, read_study
from kltune.report.table import trial_blocks
from kltune.trial.outcome import StopReason


def grid_of(study: StudyRows) -> Grid:
    blocks = trial_blocks(study, study.trials[0], rank(study))
    (grid,) = [block for block in blocks if isinstance(block, Grid)]
    return grid


def test_the_guards_words_stand_verbatim(tmp_path: Path) -> None:
    detail = "kl 0.612 > 0.5 nats/token for 3 steps | <b>"
    study = read_study(
        write_study(tmp_path, [trial(0.1, reason=StopReason.KL_LIMIT, detail=detail)])
    )
    assert any(detail in row for row in grid_of(study).rows)


def test_rows_and_header_have_the_same_length_whatever_the_state(tmp_path: Path) -> None:
    fakes = [
        trial(0.1),
        trial(0.1, steps=0, reason=None),
        trial(0.0, steps=5, reason=StopReason.ERROR),
    ]
    grid = grid_of(read_study(write_study(tmp_path, fakes)))
    assert {len(row) for row in grid.rows} == {len(grid.header)}
    assert [row[0] for row in grid.rows] == ["0", "1", "2"]


def test_kl_is_given_in_both_units_and_beta_as_a_range(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path, [trial(0.1)]))
    grid = grid_of(study)
    assert "KL at peak (nats/token)" in grid.header
    assert "KL at peak (nats/sequence)" in grid.header
    assert grid.rows[0][grid.header.index("beta range")] == "0.1"


def test_groups_come_in_their_order_and_within_one_the_trial_numbers_do(tmp_path: Path) -> None:
    low, high = (0.2, *[0.2] * 8), (0.2, *[0.9] * 8)
    fakes = [
        trial(1.0, gold=low),
        trial(1.0, gold=high, value=0.90),
        trial(1.0, gold=high, value=0.91),
        trial(0.0, value=0.99),
        trial(1.0, steps=40, reason=StopReason.PRUNED),
    ]
    study = read_study(write_study(tmp_path, fakes, objective={"kl_limit": 0.06}))
    rows = [row[:2] for row in grid_of(study).rows]
    assert rows == [("1", "1"), ("2", "1"), ("0", "2"), ("3", "–"), ("4", "–")]


def test_repeats_on_other_seeds_are_in_no_group(tmp_path: Path) -> None:
    fakes = [trial(0.0, origin="zero"), trial(0.0, origin="noise:1", seed=1), trial(0.5)]
    study = read_study(write_study(tmp_path, fakes))
    rows = {row[0]: row[1] for row in grid_of(study).rows}
    assert rows["1"] == "–"
    assert list(rows)[-1] == "1"


def test_without_a_ranking_no_order_is_claimed(tmp_path: Path) -> None:
    fakes = [trial(1.0, value=0.1), trial(1.0, value=0.3)]
    study = read_study(write_study(tmp_path, fakes))
    (grid,) = [b for b in trial_blocks(study, None) if isinstance(b, Grid)]
    assert [row[:2] for row in grid.rows] == [("0", "–"), ("1", "–")]


def test_guards_that_warned_are_named_beside_the_state(tmp_path: Path) -> None:
    said = [("truncation", 30, "60 % cut"), ("repetition", 40, "half repeats")]
    study = read_study(write_study(tmp_path, [trial(0.1, warnings=said), trial(0.2)]))
    grid = grid_of(study)
    states = {row[0]: row[grid.header.index("state")] for row in grid.rows}
    assert states == {"0": "complete; warned: truncation, repetition", "1": "complete"}


def test_the_gold_before_training_is_said_once_and_the_header_is_short(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path, [trial(0.1), trial(0.2)]))
    note = trial_blocks(study, None)[0]
    assert isinstance(note, Paragraph)
    golds = sorted(row.start.gold for row in study.trials if row.start is not None)
    assert f"Gold before training: {golds[0]:.3f} to {golds[1]:.3f}." in note.text
    header = grid_of(study).header
    assert header[:4] == ("trial", "tie group", "setting", "value")
    assert len(header) <= 16
