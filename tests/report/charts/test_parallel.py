from __future__ import annotations

from chart_case import accepted, named, names

from kltune.report.charts.parallel import Axis, Line, blend, parallel_chart
from kltune.report.colours import HIGH, LOW, MIDDLE

AXES = (
    Axis("beta", (0.0, 1.0, 0.5), ("0.01", "1", "<b>0.1</b>"), ((0.0, "0.01"), (1.0, "1"))),
    Axis("value (gold)", (0.0, 1.0, 0.9), ("0.1", "0.9", "0.8"), ()),
)
LINES = (
    Line(4, 0.1, is_feasible=True, is_best=False),
    Line(5, 0.9, is_feasible=False, is_best=False),
    Line(6, 0.8, is_feasible=True, is_best=True),
)


def test_a_line_goes_over_all_axes_and_knows_its_trial() -> None:
    chart = accepted(parallel_chart(AXES, LINES))
    low = named(chart, "value 0.100")
    assert low["y"] == [0, 0]
    assert low["customdata"] == [4, 4]
    assert low["text"] == ["0.01", "0.1"]
    assert named(chart, "recommended: trial 6")["text"][0] == "&lt;b&gt;0.1&lt;/b&gt;"
    assert names(chart)[-1] == "recommended: trial 6"


def test_outside_the_limits_is_said_by_dots_and_words() -> None:
    outside = named(parallel_chart(AXES, LINES), "value 0.900")
    assert outside["line"]["dash"] == "dot"
    assert outside["name"].endswith("outside the limits")


def test_the_colours_run_over_the_scale() -> None:
    assert (blend(0.0), blend(0.5), blend(1.0)) == (LOW, MIDDLE, HIGH)
    assert blend(0.25) not in (LOW, MIDDLE)
