from __future__ import annotations

import math

import numpy as np
from chart_case import accepted, named

from kltune.report.charts.tokens import curves_chart, heat_chart, profile_chart


def test_the_map_has_a_cell_for_each_step_and_position_and_gaps_where_nothing_is() -> None:
    kl_PS = np.array([[0.1, 0.2], [math.nan, 0.4]])
    chart = accepted(heat_chart([0.5, 1.5, 2.5], [0, 2, 4], kl_PS, 0.4, (4, 2)))
    (heat,) = chart.traces
    assert heat["z"] == [[0.1, 0.2], [None, 0.4]]
    assert heat["x"] == [0.5, 1.5, 2.5]
    assert "customdata" not in heat, "a cell is not a trial"
    assert chart.layout["annotations"][0]["text"] == "peak of gold"
    assert "shapes" not in heat_chart([0.5, 1.5, 2.5], [0, 2, 4], kl_PS, 0.4, (4, None)).layout


def test_the_maps_colour_goes_with_the_square_root() -> None:
    kl_PS = np.array([[0.1]])
    scale = heat_chart([0.5, 1.5], [0, 2], kl_PS, 0.4, (2, None)).traces[0]["colorscale"]
    places = [place for place, _ in scale]
    assert places[0] == 0
    assert places[-1] == 1
    assert math.isclose(places[len(places) // 2], 0.25)


def test_a_moment_is_a_line_in_both_panels_with_one_entry_in_the_legend() -> None:
    moments = [
        ("start (step 1)", "#010203", ((0.0, 0.1), (1.0, math.nan)), ((0.0, 64.0), (1.0, 3.0))),
        ("end (step 9)", "#f59e0b", ((0.0, 0.2), (1.0, 0.3)), ((0.0, 64.0), (1.0, 60.0))),
    ]
    chart = accepted(profile_chart(moments, 1.5))
    shown = [trace for trace in chart.traces if trace["showlegend"]]
    assert [trace["name"] for trace in shown] == ["start (step 1)", "end (step 9)"]
    assert shown[0]["y"] == [0.1, None]
    assert shown[0]["line"]["dash"] != shown[1]["line"]["dash"]


def test_a_logarithmic_panel_leaves_out_what_is_not_above_zero() -> None:
    lines = {"p50": ("#3b82f6", "solid", ((1, 0.0), (2, 0.1), (3, 0.2)))}
    shares = {"KL share of the loss": ("#f59e0b", "solid", ((1, 0.5),))}
    chart = accepted(
        curves_chart([("exact KL of a token (nats)", 1.5, lines), ("share of the KL", 1.0, shares)])
    )
    assert named(chart, "p50")["x"] == [2, 3]
    assert chart.layout["yaxis"]["type"] == "log"
    assert chart.layout["yaxis2"]["range"][1] > 1
    assert "markers" in named(chart, "KL share")["mode"], "a lone point would be no line"
