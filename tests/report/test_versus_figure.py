"""One drawing with every study in a colour of its own."""

from __future__ import annotations

import re
from pathlib import Path

from fake_study import trial
from versus_case import HIGH, a_study, golds, other_trials, sides, two

from kltune.report.versus_figure import COLOURS, gold_against_kl


def test_every_study_has_a_colour_and_a_name_in_the_legend(tmp_path: Path) -> None:
    figure = gold_against_kl(sides(*two(tmp_path)))
    assert figure is not None
    assert all(colour in figure.svg for colour in COLOURS[:2])
    assert "low: trial 0" in figure.svg
    assert "high: trial 0" in figure.svg
    assert "nats/sequence" in figure.svg


def test_more_studies_than_colours_are_drawn(tmp_path: Path) -> None:
    paths = [
        a_study(tmp_path / str(n), 0.4 + n / 10, scatter=n + 1) for n in range(len(COLOURS) + 1)
    ]
    assert gold_against_kl(sides(*paths)) is not None


def test_a_name_with_a_dollar_or_a_leading_underscore_is_text(tmp_path: Path) -> None:
    figure = gold_against_kl(sides(a_study(tmp_path / "_a$b$"), a_study(tmp_path / "c", HIGH)))
    assert figure is not None
    assert "a$b$: trial 0" in figure.svg


def test_a_run_that_broke_down_does_not_press_the_others_together(tmp_path: Path) -> None:
    low, _ = two(tmp_path)
    usual = [trial(0.1 + n / 100, gold=golds(0.8)) for n in range(12)]
    broken = trial(0.001, gold=[0.1, -900.0, -900, *[-900] * 6])
    figure = gold_against_kl(sides(low, other_trials(tmp_path / "b", [*usual, broken])))
    assert figure is not None
    assert re.search(r"Gold below [-−\d.]+ is outside the drawing", figure.caption) is None
    few = other_trials(tmp_path / "few", [*usual, *usual, *usual, *usual, *usual])
    one = trial(0.001, gold=[0.1, -900.0], steps=10)
    some = gold_against_kl(sides(few, other_trials(tmp_path / "c", [*usual, one])))
    assert some is not None
    assert "is outside the drawing" in some.caption


def test_nothing_evaluated_is_no_figure(tmp_path: Path) -> None:
    assert gold_against_kl(sides(*(other_trials(tmp_path / n, []) for n in "ab"))) is None
