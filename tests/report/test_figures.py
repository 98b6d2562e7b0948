from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ET
from pathlib import Path

from chart_case import accepted
from fake_study import trial, typical_trials, write_study

from kltune.report.figures import against_kl, importance_bars, over_steps
from kltune.report.overlays import Line, Overlay
from kltune.report.rows import read_study
from kltune.spec.trial import KLUnit

UNIT = "reward per nat of sequence KL"


def test_every_drawing_is_an_svg_that_follows_the_pages_colours(tmp_path: Path) -> None:
    rows = read_study(write_study(tmp_path, typical_trials()[:6])).trials
    figures = [
        *against_kl(rows, rows[1], rows[3], UNIT),
        *over_steps([("recommended", rows[1])], KLUnit.TOKEN, UNIT),
        importance_bars({"beta": 0.7, "penalty": 0.3}, "two bars"),
    ]
    for figure in figures:
        ET.fromstring(figure.svg)
        assert figure.svg.startswith("<svg")
        assert "currentColor" in figure.svg
        assert "#010203" not in figure.svg
        assert "<metadata" not in figure.svg
        assert figure.caption


def test_axes_name_their_units(tmp_path: Path) -> None:
    rows = read_study(write_study(tmp_path, [trial(0.1), trial(0.2)])).trials
    gold, proxy = against_kl(rows, None, None, UNIT)
    assert "√(KL in nats/sequence)" in gold.svg
    assert "proxy" in proxy.svg
    for unit in KLUnit:
        (figure,) = over_steps([("recommended", rows[0])], unit, UNIT)
        assert f"KL (nats/{unit.value})" in figure.svg
        assert "beta (reward per" in figure.svg


def test_trials_without_a_finite_number_are_drawn_without_complaint(tmp_path: Path) -> None:
    nan = float("nan")
    (row,) = read_study(write_study(tmp_path, [trial(0.0)])).trials
    points = tuple(
        dataclasses.replace(c, gold=nan, proxy=nan, gold_se=nan) for c in row.checkpoints
    )
    curve = dataclasses.replace(row.curve, beta=(nan,) * len(row.curve.step))
    blank = dataclasses.replace(row, checkpoints=points, peak=None, curve=curve)
    against_kl((blank,), None, None, UNIT)
    over_steps([("beta = 0", blank)], KLUnit.SEQUENCE, UNIT)


def test_a_trial_adds_under_700_bytes_to_a_drawing_of_all(tmp_path: Path) -> None:
    rows = read_study(write_study(tmp_path, [trial(0.1 * n) for n in range(1, 7)])).trials
    assert len(rows[0].checkpoints) == 9

    def size(copies: int) -> int:
        many = [
            dataclasses.replace(row, number=6 * copy + row.number)
            for copy in range(copies)
            for row in rows
        ]
        return len(against_kl(many, None, None, UNIT)[0].svg)

    assert (size(11) - size(1)) / 60 < 700


def test_a_dot_marks_each_evaluation(tmp_path: Path) -> None:
    rows = read_study(write_study(tmp_path, [trial(0.1), trial(0.0)])).trials
    for best in (None, rows[0]):
        for figure in against_kl(rows, best, None, UNIT):
            dots = re.findall(r"M [-\d.]+ [-\d.]+ h0", figure.svg)
            assert len(dots) == sum(len(row.checkpoints) for row in rows)


def test_the_line_of_beta_0_is_dashed(tmp_path: Path) -> None:
    rows = read_study(write_study(tmp_path, [trial(0.1), trial(0.0)])).trials
    for shown, is_dashed in ((rows[1:], True), (rows[:1], False)):
        gold, _ = against_kl(shown, shown[0], None, UNIT)  # named by its own legend, without a dash
        assert ("stroke-dasharray" in gold.svg) == is_dashed


def test_every_drawing_has_a_chart_of_the_same(tmp_path: Path) -> None:
    rows = read_study(write_study(tmp_path, typical_trials()[:6])).trials
    over = Overlay(KLUnit.TOKEN, gold=(Line("forecast: best policy", ((0.0, 0.2), (1.0, 0.8))),))
    figures = [
        *against_kl(rows, rows[1], rows[3], UNIT, over),
        *over_steps([("recommended", rows[1])], KLUnit.TOKEN, UNIT),
        importance_bars({"beta": 0.7, "penalty": 0.3}, "two bars"),
    ]
    for figure in figures:
        accepted(figure.chart)
    assert "forecast: best policy" in figures[0].svg
    assert "forecast: best policy" not in figures[1].svg
