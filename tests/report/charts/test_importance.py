from __future__ import annotations

from chart_case import accepted

from kltune.report.charts.importance import importance_chart


def test_the_largest_share_is_on_top_and_in_per_cent() -> None:
    chart = accepted(importance_chart({"beta": 0.7, "penalty": 0.1, "horizon": 0.2}))
    (bars,) = chart.traces
    assert bars["y"] == ["penalty", "horizon", "beta"]
    assert bars["x"] == [10, 20, 70]
    assert chart.layout["xaxis"]["title"]["text"] == "variance of the value explained (%)"


def test_shares_of_nothing_still_have_an_axis() -> None:
    assert accepted(importance_chart({"beta": 0.0})).layout["xaxis"]["range"] == [0, 100]
