from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from confirm_case import judged, result_of, study
from fake_study import trial, typical_trials, write_study

from kltune.metrics.jsonl import write_json
from kltune.report.answer_blocks import answer_blocks, detail_blocks
from kltune.report.document import Bullets, Facts, Grid, Hero, Paragraph
from kltune.report.recommend import NoAnswer, Recommendation, recommend
from kltune.report.rows import read_study
from kltune.trial.outcome import StopReason


def test_the_first_screen_comes_first_then_what_to_be_warned_of(tmp_path: Path) -> None:
    fakes = [trial(0.3), trial(0.1, steps=30, reason=None)]
    rows = read_study(write_study(tmp_path, fakes))
    hero, *warnings = answer_blocks(rows, recommend(rows))
    assert isinstance(hero, Hero)
    assert all(isinstance(w, Paragraph) and w.kind == "warning" for w in warnings)
    assert "Trials that have not ended: 1" in str(warnings)


def test_without_an_answer_it_says_what_to_change_and_shows_no_numbers(tmp_path: Path) -> None:
    ended = {"steps": 5, "reason": StopReason.ERROR, "detail": "RuntimeError: <b>"}
    rows = read_study(write_study(tmp_path, [trial(0.3, **ended)]))
    answer = recommend(rows)
    assert isinstance(answer, NoAnswer)
    first, *_ = answer_blocks(rows, answer)
    assert isinstance(first, Bullets)
    assert first.items == answer.advice
    assert detail_blocks(rows, answer) == ()
    empty = read_study(write_study(tmp_path / "empty", []))
    assert isinstance(answer_blocks(empty, recommend(empty))[0], Bullets)


def test_the_details_have_the_formulas_and_every_baseline(tmp_path: Path) -> None:
    rows = read_study(write_study(tmp_path, typical_trials()))
    facts, grid = detail_blocks(rows, recommend(rows))
    assert isinstance(facts, Facts)
    assert "In your framework" in dict(facts.pairs)
    assert "reverse KL" in dict(facts.pairs)["Its gradient"]
    assert isinstance(grid, Grid)
    alone = read_study(write_study(tmp_path / "alone", [trial(0.3)]))
    assert len(detail_blocks(alone, recommend(alone))) == 1


def test_a_winner_that_the_confirmation_changed_is_said_to_be_what_is_typed(tmp_path: Path) -> None:
    best = recommend(read_study(study(tmp_path / "probe")))
    assert isinstance(best, Recommendation)
    result = result_of(judged([0.2, 1.5, 0.2, 0.0]))
    arms = (
        replace(result.arms[0], number=best.best.number),
        replace(result.arms[1], number=6),
        *result.arms[2:],
    )
    path = study(tmp_path / "s")
    write_json(path / "confirm" / "confirm.json", replace(result, arms=arms).as_json())
    rows = read_study(path)
    hero, note, *_ = answer_blocks(rows, recommend(rows))
    assert isinstance(hero, Hero)
    assert hero.command.endswith("--trial 6")
    assert isinstance(note, Paragraph)
    assert note.text.startswith("What to type is the setting of trial 6: fresh seeds and test")
