from __future__ import annotations

import dataclasses
from pathlib import Path

from chart_case import accepted, named, size
from fake_study import trial, typical_trials, write_study

from kltune.report.charts.timeline import MOST_PATTERNED, timeline_chart
from kltune.report.rows import read_study
from kltune.trial.outcome import StopReason


def test_a_bar_is_as_high_as_the_steps_trained_and_knows_its_trial(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path, typical_trials()))
    chart = accepted(timeline_chart(study))
    bars = [trace for trace in chart.traces if trace["type"] == "bar"]
    found = {
        number: steps
        for trace in bars
        for number, steps in zip(trace["customdata"], trace["y"], strict=True)
    }
    assert found == {row.number: row.steps_run for row in study.trials}
    assert named(chart, "pruned (2)")["x"] == [9, 14]
    assert named(chart, "failed: error (1)")["customdata"] == [11]
    peaks = named(chart, "judged at")
    assert dict(zip(peaks["x"], peaks["y"], strict=True)) == {
        row.number: row.peak.step for row in study.trials if row.peak is not None
    }


def test_no_two_ways_to_end_look_alike_without_colour(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path, typical_trials()))
    bars = [trace for trace in timeline_chart(study).traces if trace["type"] == "bar"]
    patterns = [trace["marker"].get("pattern", {}).get("shape", "") for trace in bars]
    assert len(set(patterns)) == len(patterns)


def test_a_guards_words_are_shown_as_text(tmp_path: Path) -> None:
    detail = "<b>bold</b> %{x} " + "long " * 60
    ended = trial(0.1, reason=StopReason.GOLD_DROP, steps=40, detail=detail)
    study = read_study(write_study(tmp_path, [ended, trial(0.2)]))
    text = named(timeline_chart(study), "guard gold_drop")["text"][0]
    assert "&lt;b&gt;bold" in text
    assert "<b>" not in text
    assert "%{" not in text
    assert len(text) < 300


def test_many_trials_are_thin_bars_without_patterns(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path, [trial(0.1)]))
    rows = tuple(dataclasses.replace(study.trials[0], number=n) for n in range(1000))
    chart = timeline_chart(dataclasses.replace(study, trials=rows))
    assert len(rows) > MOST_PATTERNED
    assert chart.layout["bargap"] == 0
    assert "pattern" not in chart.traces[0]["marker"]
    assert size(chart) < 120_000
