from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
from chart_case import accepted, named, names, size
from fake_study import trial, write_study

from kltune.report.charts.axes import FEW_POINTS
from kltune.report.charts.frontier import Named, frontier_chart
from kltune.report.overlays import Line, Overlay
from kltune.report.rows import TrialRow, read_study
from kltune.spec.trial import KLUnit

UNIT = "reward per nat of sequence KL"
OVER = Overlay(KLUnit.TOKEN, gold=(Line("law fitted to trial 0", ((0.1, 0.2), (1.0, 0.9))),))


def rows_of(path: Path, *betas: float) -> tuple[TrialRow, ...]:
    return read_study(write_study(path, [trial(beta) for beta in betas])).trials


def test_every_evaluation_of_every_trial_is_a_point_that_knows_its_trial(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, 0.1, 0.2, 0.0, 0.3)
    for field in ("gold", "proxy"):
        chart = accepted(frontier_chart(rows, Named(rows[0], rows[3]), field, UNIT, OVER))
        found = {
            (number, x, y)
            for trace in chart.traces
            for number, x, y in zip(
                trace.get("customdata", ()), trace["x"], trace["y"], strict=False
            )
            if number is not None
        }
        assert len(found) == sum(len(row.checkpoints) for row in rows)
        for row in rows:
            for c in row.checkpoints:
                assert any(
                    number == row.number
                    and x == pytest.approx(math.sqrt(c.kl_seq), rel=1e-3)
                    and y == pytest.approx(getattr(c, field), rel=1e-3, abs=1e-9)
                    for number, x, y in found
                )


def test_what_stands_out_does_so_by_width_dash_mark_and_name(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, 0.1, 0.2, 0.0, 0.3)
    chart = frontier_chart(rows, Named(rows[0], rows[1]), "gold", UNIT, OVER)
    best, worst = named(chart, "recommended: trial 0"), named(chart, "most over-optimised: trial 1")
    free, others = named(chart, "beta = 0"), named(chart, "other trials")
    assert best["line"]["width"] > others["line"]["width"]
    assert len({t["marker"].get("symbol", "circle") for t in (best, worst, free, others)}) == 4
    assert free["line"]["dash"] != others["line"]["dash"]
    assert best["error_y"]["array"] == pytest.approx(
        [c.gold_se for c in rows[0].checkpoints], rel=1e-3
    )
    assert names(chart)[-1] == "law fitted to trial 0"
    assert "law fitted to trial 0" not in names(
        frontier_chart(rows, Named(None, None), "proxy", UNIT, OVER)
    )


def test_colours_stand_at_the_points_of_their_trial(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, 0.1, 0.01, 1.0)
    nan = math.nan
    blank = dataclasses.replace(
        rows[1], checkpoints=tuple(dataclasses.replace(c, gold=nan) for c in rows[1].checkpoints)
    )
    chart = accepted(
        frontier_chart((rows[0], blank, rows[2]), Named(None, None), "gold", UNIT, None)
    )
    (trace,) = chart.traces
    betas = {0: -1, 2: 0}
    assert len(trace["marker"]["color"]) == len(trace["x"])
    for number, colour in zip(trace["customdata"], trace["marker"]["color"], strict=True):
        assert number is None or colour == betas[number]


def test_a_trial_that_is_best_and_worst_is_drawn_once(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, 0.1, 0.2)
    chart = frontier_chart(rows, Named(rows[0], rows[0]), "gold", UNIT, None)
    assert names(chart) == ["other trials", "recommended: trial 0"]


def test_with_many_points_each_says_its_step_alone(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, 0.1, 0.2)
    many = [
        dataclasses.replace(rows[n % 2], number=n)
        for n in range(FEW_POINTS // len(rows[0].checkpoints) + 1)
    ]
    few = accepted(frontier_chart(rows, Named(None, None), "gold", UNIT, OVER))
    chart = frontier_chart(many, Named(None, None), "gold", UNIT, OVER)
    assert "k2-loss" in str(few.traces[0]["text"][0])
    assert chart.traces[0]["text"][0] == 0
    trace = chart.traces[0]
    shown = [n for n in trace["customdata"] if n is not None]
    assert len(shown) <= FEW_POINTS
    assert set(shown) == {row.number for row in many}
    assert len(trace["marker"]["color"]) == len(trace["x"])
    assert "evaluations of each" in trace["name"]
    for row in many[:2]:
        places = [i for i, n in enumerate(trace["customdata"]) if n == row.number]
        steps = [trace["text"][i] for i in places]
        assert row.peak is not None
        assert {0, row.peak.step, row.checkpoints[-1].step} <= set(steps)
        assert steps == sorted(steps)
    assert size(chart) / sum(len(row.checkpoints) for row in many) < 45
