"""The report's section on fresh seeds and test prompts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from confirm_case import judged, result_of, study

from kltune.confirm.looks import Look, note_look
from kltune.confirm.result import ConfirmResult
from kltune.metrics.jsonl import write_json
from kltune.report.build import build_report
from kltune.report.confirm_blocks import confirm_blocks, confirm_facts, confirmed_words
from kltune.report.document import Facts, Grid, Paragraph
from kltune.report.recommend import Answer, recommend
from kltune.report.rows import StudyRows, read_study


def confirmed(folder: Path, result: ConfirmResult | None) -> tuple[StudyRows, Answer]:
    path = study(folder / "s")
    if result is not None:
        write_json(path / "confirm" / "confirm.json", result.as_json())
        note_look(path, Look(("kltune", "confirm"), "x", (1,), "d", 10, 10))
    rows = read_study(path)
    return rows, recommend(rows)


def result_for(folder: Path, **changes: object) -> ConfirmResult:
    """About the very setting that the study recommends."""
    best = recommend(read_study(study(folder / "probe"))).best.number  # type: ignore[union-attr]
    result = result_of(judged([1.0, 1.0, 0.2, 0.0]), **changes)
    return replace(result, arms=(replace(result.arms[0], number=best), *result.arms[1:]))


def test_without_a_confirmation_there_is_no_section(tmp_path: Path) -> None:
    rows, answer = confirmed(tmp_path, None)
    assert confirm_blocks(rows, answer) == ()
    assert confirmed_words(rows, answer) is None
    assert confirm_facts(rows, answer) == {"confirmation": None, "looks_at_test": 0}


def test_the_verdict_the_settings_and_the_looks_are_in_it(tmp_path: Path) -> None:
    rows, answer = confirmed(tmp_path, result_for(tmp_path))
    blocks = confirm_blocks(rows, answer)
    assert isinstance(blocks[0], Paragraph)
    assert blocks[0].text.startswith("Tied: on 8 fresh seeds and 32 test prompts")
    facts = next(block for block in blocks if isinstance(block, Facts))
    assert "looked at once" in dict(facts.pairs)["Test prompts"]
    grid = next(block for block in blocks if isinstance(block, Grid))
    assert len(grid.rows) == 4
    assert all(len(row) == len(grid.header) for row in grid.rows)
    told = confirmed_words(rows, answer)
    assert told is not None
    assert told.startswith("On 8 fresh seeds and 32 test prompts: gold 0.950 (95 % interval 0.785")
    assert told.endswith("before training. Tied there with 1 of 2 other settings.")
    data = confirm_facts(rows, answer)
    assert data["looks_at_test"] == 1
    assert data["confirmation"]["is_of_recommended"] is True


def test_a_confirmation_of_what_is_no_longer_recommended_says_so(tmp_path: Path) -> None:
    result = result_for(tmp_path)
    other = replace(result, arms=(replace(result.arms[0], number=99), *result.arms[1:]))
    rows, answer = confirmed(tmp_path, other)
    first = confirm_blocks(rows, answer)[0]
    assert isinstance(first, Paragraph)
    assert first.kind == "warning"
    words = confirmed_words(rows, answer)
    assert words is not None
    assert words.startswith("Not confirmed")
    assert confirm_facts(rows, answer)["confirmation"]["is_of_recommended"] is False


def test_a_confirmation_that_can_not_be_read_costs_no_report(tmp_path: Path) -> None:
    path = study(tmp_path / "s")
    for damaged in ('{"schema": 1}', "no json", '{"schema": 1, "study": 3, "judgements": [7]}'):
        (path / "confirm").mkdir(exist_ok=True)
        (path / "confirm" / "confirm.json").write_text(damaged, encoding="utf-8")
        text = build_report(path).markdown.read_text(encoding="utf-8")
        assert "Nothing is said of fresh seeds: s/confirm/confirm.json" in text
        assert "run kltune confirm again" in text


def test_after_a_confirmation_the_report_speaks_of_its_seeds_first(tmp_path: Path) -> None:
    rows, _ = confirmed(tmp_path, result_for(tmp_path))
    text = build_report(rows.path).markdown.read_text(encoding="utf-8")
    answer = text.split("**")[1]
    assert "On 8 fresh seeds and 32 test prompts: gold 0.950" in answer
    assert "select prompts" not in answer  # its flattered gold is not the headline's
    assert "kltune confirm trained 3 settings on 8 fresh seeds" in text
    assert "was not measured: no setting was trained on two seeds" not in text
    assert "no trial has seen them" not in text
