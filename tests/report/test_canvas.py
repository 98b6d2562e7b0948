from __future__ import annotations

from kltune.report.canvas import unique_ids


def test_ids_of_two_drawings_on_a_page_differ() -> None:
    svg = '<svg><g id="a"/><use xlink:href="#a" clip-path="url(#a)"/></svg>'
    assert (
        unique_ids(svg, "x")
        == '<svg><g id="x-a"/><use xlink:href="#x-a" clip-path="url(#x-a)"/></svg>'
    )
