from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
from chart_case import accepted, named
from fake_study import trial, write_study

from kltune.report.charts.steps import steps_chart
from kltune.report.rows import read_study
from kltune.spec.trial import KLUnit

UNIT = "reward per nat of sequence KL"
SPANS = ((0.0, 1.0), (0.0, 2.0), (0.0, 3.0))


def test_gold_proxy_kl_and_beta_are_those_of_the_record(tmp_path: Path) -> None:
    (row,) = read_study(write_study(tmp_path, [trial(0.1)])).trials
    chart = accepted(steps_chart(row, KLUnit.SEQUENCE, UNIT, SPANS))
    gold, kl, beta = named(chart, "gold"), named(chart, "KL"), named(chart, "beta")
    assert gold["y"] == pytest.approx([c.gold for c in row.checkpoints], rel=1e-3)
    assert gold["x"] == [c.step for c in row.checkpoints]
    assert kl["y"] == pytest.approx(row.curve.kl_seq, rel=1e-3)
    assert beta["y"] == pytest.approx(row.curve.beta, rel=1e-3)
    assert set(kl["customdata"]) == {0}
    assert "nats/sequence" in kl["hovertemplate"]
    token = named(steps_chart(row, KLUnit.TOKEN, UNIT, SPANS), "KL")
    assert token["y"] == pytest.approx(row.curve.kl_token, rel=1e-3)


def test_kl_and_beta_share_a_panel_with_an_axis_each(tmp_path: Path) -> None:
    (row,) = read_study(write_study(tmp_path, [trial(0.1)])).trials
    frame = steps_chart(row, KLUnit.TOKEN, UNIT, SPANS).layout
    assert frame["yaxis3"]["title"]["text"] == "KL (nats/token)"
    assert frame["yaxis4"]["overlaying"] == "y3"
    assert frame["yaxis4"]["side"] == "right"
    assert frame["yaxis4"]["title"]["text"].startswith("beta (reward per nat")
    assert frame["yaxis2"]["range"] == [0, 2]
    assert row.peak is not None
    assert frame["annotations"][0]["text"] == f"peak, step {row.peak.step}"


def test_a_trial_without_a_finite_number_is_drawn_without_complaint(tmp_path: Path) -> None:
    (row,) = read_study(write_study(tmp_path, [trial(0.0)])).trials
    points = tuple(dataclasses.replace(c, gold=math.nan) for c in row.checkpoints)
    curve = dataclasses.replace(row.curve, beta=(math.nan,) * len(row.curve.step))
    blank = dataclasses.replace(row, checkpoints=points, peak=None, curve=curve)
    chart = accepted(steps_chart(blank, KLUnit.TOKEN, UNIT, SPANS))
    assert named(chart, "gold")["x"] == []
    assert set(named(chart, "beta")["y"]) == {None}


def test_the_target_of_kl_is_drawn_where_there_is_one(tmp_path: Path) -> None:
    steered = trial(0.1, controller="proportional", target_kl=0.05, horizon=640)
    rows = read_study(write_study(tmp_path, [steered, trial(0.1)])).trials
    charts = [accepted(steps_chart(row, KLUnit.TOKEN, UNIT, SPANS)) for row in rows]
    aim = named(charts[0], "target of KL")
    assert set(aim["y"]) == {0.05}
    assert aim["yaxis"] == "y3"
    assert not [t for t in charts[1].traces if str(t.get("name")).startswith("target")]
