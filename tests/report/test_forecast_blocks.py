from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fake_study import trial, write_study
from preview_case import forecast_of, hump, opposite, same, scored

from kltune.errors import StudyError
from kltune.metrics.jsonl import encode, write_json
from kltune.preview.result import FILE, Forecast, Interval
from kltune.report.document import Bullets, Document, Figures, Grid, Paragraph, Section
from kltune.report.forecast import Outcome
from kltune.report.forecast_blocks import forecast_blocks, forecast_facts, outcome_words
from kltune.report.markdown import render_markdown
from kltune.report.page import render_page
from kltune.report.rows import StudyRows, read_study


def study_with(folder: Path, forecast: Forecast | None) -> StudyRows:
    path = write_study(folder, [trial(0.1), trial(0.3), trial(0.0)])
    if forecast is not None:
        write_json(path / FILE, forecast.as_json())
    return read_study(path)


def test_without_a_preview_there_is_no_section(tmp_path: Path) -> None:
    study = study_with(tmp_path, None)
    assert forecast_blocks(study) == ()
    assert forecast_facts(study) is None


def test_the_section_says_what_was_forecast_what_came_and_how_efficient(tmp_path: Path) -> None:
    study = study_with(tmp_path, forecast_of(scored(hump, samples=512)))
    blocks = forecast_blocks(study)
    bullets = next(block for block in blocks if isinstance(block, Bullets))
    assert bullets.items[0].startswith("Gold is highest at a KL of")
    assert bullets.items[1].startswith("What came: over 3 trials gold peaked at")
    assert "RL may reach a higher gold" in bullets.items[-1]
    grid = next(block for block in blocks if isinstance(block, Grid))
    shares = [float(row[-1].split()[0].replace("−", "-")) for row in grid.rows]
    assert shares == sorted(shares, reverse=True)
    assert any(
        isinstance(b, Paragraph) and b.text.startswith("KL efficiency between") for b in blocks
    )


@pytest.mark.parametrize("gold_of", [hump, opposite, same])
def test_page_and_markdown_hold_the_section(tmp_path: Path, gold_of) -> None:
    blocks = forecast_blocks(study_with(tmp_path, forecast_of(scored(gold_of))))
    document = Document("t", "s", "h", True, (Section("Forecast", "forecast", blocks),))
    assert "nothing was trained for it" in render_markdown(document)
    page = render_page(document)
    assert page.count("<svg") == sum(
        len(block.figures) for block in blocks if isinstance(block, Figures)
    )


def test_the_facts_are_strict_json_and_say_the_same(tmp_path: Path) -> None:
    study = study_with(tmp_path, forecast_of(scored(hump, samples=512)))
    facts = forecast_facts(study)
    assert facts is not None
    assert facts["verdict"] == "turns"
    assert all(row["share"] == row["gain"] / row["optimum"] for row in facts["kl_efficiency"])
    assert "non_finite" not in encode(facts)


def test_what_came_is_placed_beside_the_interval() -> None:
    forecast = forecast_of(scored(hump, samples=512))
    reading = replace(forecast.reading, peak_kl_seq=Interval(1.0, 0.5, 2.0))
    told = replace(forecast, readings=(reading,))
    assert "earlier than forecast" in outcome_words(told, Outcome(3, 0.4, 0.1))
    assert "within the forecast's interval" in outcome_words(told, Outcome(3, 1.9, 0.1))
    assert "later than forecast" in outcome_words(told, Outcome(3, 2.1, 0.1))
    opened = replace(forecast, readings=(replace(reading, peak_kl_seq=Interval(1.0, 0.5, None)),))
    assert "within" in outcome_words(opened, Outcome(3, 9.0, 0.1))


def test_a_broken_preview_is_refused_by_its_name(tmp_path: Path) -> None:
    study = study_with(tmp_path, None)
    write_json(study.path / FILE, {"something": "else"})
    with pytest.raises(StudyError, match=r"preview\.json"):
        forecast_blocks(study)
