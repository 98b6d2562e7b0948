from __future__ import annotations

import json
import re

import pytest

from kltune.report.document import (
    Card,
    Cards,
    Chart,
    Figure,
    Figures,
    Grid,
    Hero,
    Section,
    Tile,
)
from kltune.report.page_blocks import NOT_PRINTED, has_charts, section_html, trial_numbers

SVG = '<svg viewBox="0 0 9 9"><g id="a"/></svg>'
TRIALS = Grid(
    ("trial", "why"), (("7", "x"), ("12", "y" * 60)), frozenset((1,)), frozenset((0,)), "trials"
)


def html_of(*blocks: object) -> str:
    section = Section("T", "t", blocks)  # type: ignore[arg-type]
    return section_html(section, frozenset(("7", "12")))


def test_rows_of_the_trial_table_are_anchors_and_their_numbers_links() -> None:
    html = html_of(TRIALS)
    assert '<tr id="trial-7"><td class="number"><a href="#trial-7">7</a></td>' in html
    assert '<tr id="trial-12" class="marked">' in html


def test_a_trial_named_in_another_table_is_a_link_without_an_anchor() -> None:
    html = html_of(Grid(("setting", "trial"), (("7", "7"), ("a", "99"), ("b", "–"))))
    assert html.count('<a href="#trial-7">7</a>') == 1
    assert "trial-99" not in html
    assert "<tr id" not in html


def test_a_sentence_in_a_cell_asks_for_room_and_a_number_does_not() -> None:
    html = html_of(TRIALS)
    assert '<td class="long">yyy' in html
    assert "<td>x</td>" in html


def test_columns_that_paper_has_no_room_for_are_marked_in_the_table_of_all_trials_alone() -> None:
    header, row = ("trial", "state", NOT_PRINTED[0], "time"), ("7", "complete", "0.5", "2 min")
    made = html_of(Grid(header, (row,), numeric=frozenset((2,)), kind="trials"))
    assert made.count('class="number aside"') == 2
    assert made.count('class="aside"') == 2
    assert "aside" not in html_of(Grid(header, (row,)))


def test_trial_numbers_are_those_of_the_table_of_all_trials() -> None:
    other = Grid(("trial",), (("3",),))
    assert trial_numbers((Section("T", "t", (TRIALS, other)),)) == {"7", "12"}


def test_a_figure_with_data_keeps_its_picture_beside_it() -> None:
    chart = Chart(({"type": "scatter", "y": [1]},), {})
    html = html_of(Figures((Figure(SVG, "words & more", False, chart), Figure(SVG, "plain"))))
    assert html.count('<div class="picture"><svg') == 2
    (data,) = re.findall(r'<script type="application/json" class="chart">(.*?)</script>', html)
    assert json.loads(data)["data"] == [{"type": "scatter", "y": [1]}]
    assert 'aria-label="words &amp; more"' in html
    assert has_charts((Section("T", "t", (Figures((Figure(SVG, "", False, chart),)),)),))
    assert not has_charts((Section("T", "t", (Figures((Figure(SVG, "plain"),)),)),))


def test_the_first_screen_says_what_to_type_and_shows_its_tiles() -> None:
    hero = Hero((("beta", "0.02"),), (Tile("Gold", "+1", "95 %"), Tile("Cost", "2 h")), "kltune x")
    html = html_of(hero)
    assert '<dl class="type-in"><div><dt>beta</dt><dd>0.02</dd></div></dl>' in html
    assert '<span class="value">+1</span><span class="note">95 %</span>' in html
    assert '<span class="value">2 h</span></li>' in html
    assert "<code>kltune x</code>" in html


def test_no_command_leaves_no_empty_box() -> None:
    assert "<pre" not in html_of(Hero((("beta", "0.02"),), (), ""))


@pytest.mark.parametrize("change", ["", "since the peak: gold -1"])
def test_a_change_is_words_where_there_is_one(change: str) -> None:
    html = html_of(Cards("t", "p", (Card("end", "text", "gold 1", change),), "why this prompt"))
    assert ("since the peak: gold -1" in html) == bool(change)
    assert ('class="change"' in html) == bool(change)
    assert "why this prompt" in html
