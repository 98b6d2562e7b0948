from __future__ import annotations

from pathlib import Path

from fake_study import trial, write_study

from kltune.report.document import Cards
from kltune.report.rows import read_study
from kltune.report.samples import LONGEST_TEXT, sample_blocks, shortened


def test_start_peak_and_end_of_the_same_prompts_stand_side_by_side(tmp_path: Path) -> None:
    gold = (0.2, 0.4, 0.9, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0)
    best, worst = read_study(
        write_study(tmp_path, [trial(0.3, gold=gold), trial(0.0, gold=gold)])
    ).trials
    cards = [block for block in sample_blocks(best, worst) if isinstance(block, Cards)]
    assert len(cards) == 4
    for group in cards:
        assert [card.title for card in group.cards] == [
            "start (step 0)",
            "peak (step 20)",
            "end (step 80)",
        ]
        assert all("gold " in card.numbers and "nats in" in card.numbers for card in group.cards)


def test_a_peak_at_the_end_is_shown_once(tmp_path: Path) -> None:
    (row,) = read_study(write_study(tmp_path, [trial(0.3, gold=[n / 10 for n in range(9)])])).trials
    cards = [block for block in sample_blocks(row, row) if isinstance(block, Cards)]
    assert [card.title for card in cards[0].cards] == ["start (step 0)", "peak and end (step 80)"]
    assert len(cards) == 2


def test_lost_samples_leave_the_section_out(tmp_path: Path) -> None:
    (row,) = read_study(write_study(tmp_path, [trial(0.3)])).trials
    (row.folder / "samples.jsonl").unlink()
    assert sample_blocks(row, None) == ()
    assert sample_blocks(None, None) == ()


def test_a_long_text_says_how_much_was_left_out() -> None:
    text = shortened("w" * 10_240)
    assert len(text) < LONGEST_TEXT + 60
    assert text.endswith("(10,240 characters in all)")
