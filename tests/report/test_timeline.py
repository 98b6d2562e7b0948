from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ET
from pathlib import Path

from chart_case import accepted
from fake_study import trial, typical_trials, write_study

from kltune.report.rows import read_study
from kltune.report.timeline import timeline


def test_the_picture_names_every_way_to_end_and_its_axes(tmp_path: Path) -> None:
    figure = timeline(read_study(write_study(tmp_path, typical_trials())))
    assert figure is not None
    ET.fromstring(figure.svg)
    for words in ("ran all steps", "pruned (2)", "failed: error (1)", "steps trained", "judged at"):
        assert words in figure.svg
    assert "80 steps planned" in figure.caption
    assert figure.is_wide
    accepted(figure.chart)


def test_before_the_first_trial_there_is_none(tmp_path: Path) -> None:
    assert timeline(read_study(write_study(tmp_path, []))) is None


def test_a_thousand_trials_add_little_to_the_picture(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path, [trial(0.1)]))
    rows = tuple(dataclasses.replace(study.trials[0], number=n) for n in range(1000))
    figure = timeline(dataclasses.replace(study, trials=rows))
    assert figure is not None
    assert len(figure.svg) < 150_000
