from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ET
from pathlib import Path

from fake_study import trial, typical_trials, write_study

from kltune.report.figures import against_kl, importance_bars, over_steps
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
