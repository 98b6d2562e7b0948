from __future__ import annotations

import itertools
import math

from kltune.report.charts.panels import band, dotted_line, faint, line, panels, thinned


def test_panels_fill_the_height_from_the_top_down_and_never_meet() -> None:
    frame = panels((2, 1, 1), 500, "step", ("a", "b", "c"))
    domains = [frame[name]["domain"] for name in ("yaxis", "yaxis2", "yaxis3")]
    assert domains[0][1] == 1
    assert abs(domains[2][0]) < 1e-3
    for (low, high), (below_low, below_high) in itertools.pairwise(domains):
        assert low < high
        assert below_low < below_high < low
    assert frame["xaxis"]["anchor"] == "y3"


def test_a_long_line_keeps_its_ends() -> None:
    points = [(float(x), 1.0) for x in range(5000)]
    trace = line("kl", points, 2, "#112233", "x %{x}")
    assert len(trace["x"]) == 600
    assert (trace["x"][0], trace["x"][-1]) == (0, 4999)
    assert trace["yaxis"] == "y2"
    assert dotted_line(trace, "square")["marker"]["symbol"] == "square"
    assert thinned([1, 2, 3], 3) == [1, 2, 3]


def test_a_band_goes_out_above_and_back_below_without_what_is_not_finite() -> None:
    area = band([(0, 1, 3), (1, math.nan, 4), (2, 2, 5)], 1, "#102030")
    assert area["x"] == [0, 2, 2, 0]
    assert area["y"] == [3, 5, 2, 1]
    assert area["fillcolor"] == "rgba(16,32,48,0.2)" == faint("#102030")
