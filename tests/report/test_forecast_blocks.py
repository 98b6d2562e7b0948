from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_study import trial, write_study
from preview_case import forecast_of, hump, opposite, same, scored

from kltune.metrics.jsonl import encode, write_json
from kltune.preview.result import FILE, Forecast, Interval
from kltune.report.build import build_report
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


@pytest.mark.parametrize("text", ["{", "[]", '{"something": "else"}', '{"schema": 99}'])
def test_a_preview_that_can_not_be_read_is_skipped_with_a_note(tmp_path: Path, text: str) -> None:
    study = study_with(tmp_path, None)
    (study.path / FILE).write_text(text, encoding="utf-8")
    (note,) = forecast_blocks(study)
    assert isinstance(note, Paragraph)
    assert "No forecast is shown, since preview.json can't be used" in note.text
    assert f"run kltune preview {study.path} again" in note.text
    assert forecast_facts(study) == {"skipped": note.text}
    build_report(study.path)
    assert "since preview.json can't be used" in (study.path / "report.md").read_text()


def test_a_preview_of_another_model_is_skipped_with_a_note(tmp_path: Path) -> None:
    forecast = forecast_of(scored(hump))
    other = replace(forecast, subject=replace(forecast.subject, model="org/another"))
    (note,) = forecast_blocks(study_with(tmp_path, other))
    assert isinstance(note, Paragraph)
    assert (
        "preview.json is of another model (org/another; this study's: builtin:kitchen)" in note.text
    )


def test_trials_that_are_left_out_are_counted_with_the_reason() -> None:
    forecast = forecast_of(scored(same))
    text = outcome_words(forecast, Outcome(21, 0.4, 0.1, num_near=2, num_unjudged=1))
    assert text.endswith(
        "Left out of 24 trials: 2 whose gold is highest within 0.05 nats/sequence of the reference, "
        "1 with no start or no checkpoint to be judged by."
    )
    assert "Left out" not in outcome_words(forecast, Outcome(21, 0.4, 0.1))


def test_a_scorer_that_never_varies_has_a_section_too(tmp_path: Path) -> None:
    data = scored(hump)
    study = study_with(tmp_path, forecast_of(replace(data, gold_PN=np.ones_like(data.gold_PN))))
    bullets = next(block for block in forecast_blocks(study) if isinstance(block, Bullets))
    assert "there is nothing to judge by" in bullets.items[0]
    facts = forecast_facts(study)
    assert facts is not None
    assert facts["agreement"] is None
