from __future__ import annotations

from pathlib import Path

from chart_case import accepted
from fake_study import trial, write_study

from kltune.report.charts.parts import parts_chart
from kltune.report.rows import read_study


def test_every_part_has_a_panel_of_its_own(tmp_path: Path) -> None:
    row = read_study(write_study(tmp_path, [trial(0.1)])).trials[0]
    curves = {"near": [(1.0, 0.5), (2.0, 0.7)], "brief": [(1.0, 10.0), (2.0, 30.0)]}
    chart = accepted(parts_chart(row, curves))
    assert [trace["yaxis"] for trace in chart.traces] == ["y", "y2"]
    assert chart.traces[1]["y"] == [10, 30]
    assert chart.layout["yaxis2"]["title"]["text"] == "brief"
    assert chart.traces[0]["customdata"] == [0, 0]
