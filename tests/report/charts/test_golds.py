from __future__ import annotations

from pathlib import Path

import pytest
from chart_case import accepted, named
from fake_study import trial, write_study

from kltune.report.charts.golds import golds_chart
from kltune.report.golds import front_of
from kltune.report.rows import read_study


def test_every_checkpoint_stands_at_its_two_golds(tmp_path: Path) -> None:
    other = [0.9 - 0.05 * i for i in range(9)]
    trials = [trial(0.1, others={"kept": other}), trial(0.3, others={"kept": other})]
    study = read_study(write_study(tmp_path, trials))
    front = front_of(study, "kept")
    chart = accepted(golds_chart(front, study.trials[0]))
    dots = named(chart, "checkpoint")
    assert dots["x"] == pytest.approx([spot.place[0] for spot in front.spots], rel=1e-3)
    assert dots["y"] == pytest.approx([spot.place[1] for spot in front.spots], rel=1e-3)
    assert set(dots["customdata"]) == {0, 1}
    assert chart.layout["yaxis"]["title"]["text"] == "kept (select prompts)"
    best = named(chart, "recommended")
    assert best["customdata"] == [0]
    assert best["error_x"]["array"][0] is not None
