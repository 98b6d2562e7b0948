from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from kltune.report.canvas import Trace, draw_traces, drawing, unique_ids


def test_ids_of_two_drawings_on_a_page_differ() -> None:
    svg = '<svg><g id="a"/><use xlink:href="#a" clip-path="url(#a)"/></svg>'
    assert (
        unique_ids(svg, "x")
        == '<svg><g id="x-a"/><use xlink:href="#x-a" clip-path="url(#x-a)"/></svg>'
    )


def test_places_have_two_decimals_and_text_keeps_its_own() -> None:
    with drawing(3.0, 2.0) as (canvas, out):
        axes = canvas.add_subplot()
        axes.plot([0.0, 1 / 3, 1.0], [0.0, 1 / 7, 1.0])
        axes.set_title("0.123456")
    places = re.findall(r' (?:d|x|y)="([^"]*)"', out[0])
    assert any(re.search(r"\d\.\d\d\b", place) for place in places)
    assert not any(re.search(r"\d\.\d{3}", place) for place in places)
    assert "0.123456" in out[0]


@pytest.mark.parametrize("size", [2.0, 5.0])
def test_a_dot_is_round_of_its_size_and_where_its_point_is(size: float) -> None:
    points = [(0.25, 0.5), (0.75, 0.6)]
    with drawing(3.0, 2.0) as (canvas, out):
        axes = canvas.add_subplot()
        draw_traces(axes, [Trace([], "red"), Trace(points, "red")], width=1.0, dot=size, zorder=2)
    (dots,) = [p for p in ElementTree.fromstring(out[0]).iter() if " h0" in p.get("d", "")]
    drawn = re.findall(r"M ([\d.]+) ([\d.]+) h0", dots.get("d", ""))
    to_page = axes.transData - canvas.transFigure
    for (x, y), place in zip(drawn, to_page.transform(points), strict=True):
        assert float(x) / 216 == pytest.approx(place[0], abs=1e-4)
        assert 1 - float(y) / 144 == pytest.approx(place[1], abs=1e-4)
    style = dots.get("style", "")
    assert "stroke-linecap: round" in style
    assert f"stroke-width: {size:g}" in style


def test_traces_widen_the_axes_to_hold_them() -> None:
    with drawing(3.0, 2.0) as (canvas, _):
        axes = canvas.add_subplot()
        draw_traces(axes, [Trace([(5.0, 7.0), (9.0, 8.0)], "red")], width=1, dot=2, zorder=2)
        low, high = axes.get_xlim()
    assert low < 5.0 < 9.0 < high
