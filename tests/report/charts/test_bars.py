from __future__ import annotations

from chart_case import accepted

from kltune.report.charts.bars import bar_chart


def test_a_part_is_a_segment_whose_label_says_what_and_how_much() -> None:
    parts = [("run", 120.0, "#0d9488"), ("pruned", 40.0, "#3b82f6")]
    chart = accepted(bar_chart("160 trial-steps planned", parts, ["run 120", "<b>pruned</b> 40"]))
    assert [trace["x"] for trace in chart.traces] == [[120], [40]]
    assert chart.layout["barmode"] == "stack"
    assert chart.layout["xaxis"]["range"] == [0, 160]
    assert chart.traces[1]["name"] == "&lt;b&gt;pruned&lt;/b&gt; 40"
