from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from fake_study import trial, write_study

from kltune.report.document import Block, Cards, Paragraph
from kltune.report.gallery import CHOSEN, NUM_PROMPTS, UNCHOSEN, choose_prompts, gallery_blocks
from kltune.report.rows import TrialRow, read_study
from kltune.report.samples import Moment, read_moments

PEAKED = (0.2, 0.4, 0.9, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0)


def rows_of(folder: Path, count: int = 2) -> tuple[TrialRow, ...]:
    fakes = [trial(0.3, gold=PEAKED), trial(0.0, gold=PEAKED)]
    return read_study(write_study(folder, fakes[:count])).trials


def rescored(row: TrialRow, scores: Mapping[tuple[int, str], tuple[float, float]]) -> None:
    """Give samples the gold and proxy in ``scores``; 0 and 0 where it has none."""
    path = row.folder / "samples.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for sample in lines:
        key = (sample["step"], sample["prompt_id"])
        sample["gold"], sample["proxy"] = scores.get(key, (0.0, 0.0))
    path.write_text("".join(json.dumps(s) + "\n" for s in lines), encoding="utf-8")


def cards_in(blocks: tuple[Block, ...]) -> list[Cards]:
    return [block for block in blocks if isinstance(block, Cards)]


def test_prompts_whose_gold_fell_while_their_proxy_rose_come_first_then_the_first_on_record(
    tmp_path: Path,
) -> None:
    (row,) = rows_of(tmp_path, 1)
    fell = {"food-1": 0.2, "food-3": 0.9}
    rescored(
        row,
        {
            **{(80, prompt): (-1.0, rise) for prompt, rise in fell.items()},
            (80, "food-2"): (1.0, 5.0),  # its proxy rose most of all, but its gold rose too
        },
    )
    chosen = choose_prompts(read_moments(row), 4)
    assert chosen == (("food-3", CHOSEN), ("food-1", CHOSEN), ("food-0", UNCHOSEN))


def test_the_first_prompt_is_shown_once_even_if_it_would_have_been_chosen(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, 1)
    rescored(row, {(80, "food-0"): (-1.0, 1.0), (80, "food-1"): (-1.0, 0.5)})
    chosen = choose_prompts(read_moments(row), 4)
    assert [key for key, _ in chosen] == ["food-1", "food-0"]
    assert chosen[1][1].startswith(UNCHOSEN)
    assert "Its gold fell" in chosen[1][1]


def test_of_a_trial_that_ends_at_its_peak_the_first_prompts_are_shown() -> None:
    samples = {f"p{n}": {"gold": 0.0, "proxy": 0.0} for n in range(5)}
    moments = (Moment("start", 0, samples, 5), Moment("peak and end", 80, samples, 5))
    notes = choose_prompts(moments, 4)
    assert [key for key, _ in notes] == ["p0", "p1"]
    assert all(note.startswith("Not chosen by its scores") for _, note in notes)


def test_both_trials_answer_the_same_prompts_and_the_over_optimised_one_chooses(
    tmp_path: Path,
) -> None:
    best, worst = rows_of(tmp_path)
    rescored(worst, {(80, f"food-{n}"): (-1.0, float(n)) for n in (1, 2, 3)})
    rescored(best, {})
    blocks = gallery_blocks(best, worst)
    groups = cards_in(blocks)
    assert len(groups) == 2 * NUM_PROMPTS[2] == 6
    titles = [group.title for group in groups]
    assert titles[0] == "Most over-optimised: trial 1, prompt food-3"
    assert titles[1] == "Recommended: trial 0, prompt food-3"
    assert titles[4].endswith("prompt food-0")
    assert (groups[0].note, groups[1].note) == (CHOSEN, "The same prompt.")
    assert isinstance(blocks[0], Paragraph)
    assert "Kept at each evaluation: 4 completions" in blocks[0].text
    assert "on 3 of the 4 prompts" in blocks[0].text
    assert "whose proxy rose the most, and the first prompt on record" in blocks[0].text


def test_one_trial_alone_says_what_it_is(tmp_path: Path) -> None:
    best, _ = rows_of(tmp_path)
    assert "Recommended: trial 0" in cards_in(gallery_blocks(best, None))[0].title
    both = cards_in(gallery_blocks(best, best))
    assert "Recommended and most over-optimised: trial 0" in both[0].title
    assert len(both) <= NUM_PROMPTS[1]


def test_nothing_kept_nothing_shown(tmp_path: Path) -> None:
    best, worst = rows_of(tmp_path)
    assert gallery_blocks(None, None) == ()
    (worst.folder / "samples.jsonl").unlink()
    assert all("trial 0" in group.title for group in cards_in(gallery_blocks(best, worst)))
    (best.folder / "samples.jsonl").unlink()
    assert gallery_blocks(best, worst) == ()
