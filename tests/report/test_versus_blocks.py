"""The comparison as a page, as Markdown and as data: all three say the same, and text can't become markup."""

from __future__ import annotations

import json
from pathlib import Path

from versus_case import a_study, findings, other_trials, two

from kltune.report.document import Figures, Grid
from kltune.report.markdown import render_markdown
from kltune.report.page import render_page
from kltune.report.versus_blocks import compose_versus, versus_data
from kltune.report.versus_words import headline


def test_what_can_be_told_comes_first(tmp_path: Path) -> None:
    found = findings(*two(tmp_path))
    document = compose_versus(found)
    assert document.title == "kltune: low against high"
    assert document.headline == headline(found)
    assert document.is_answer
    assert not document.is_doubtful
    anchors = [section.anchor for section in document.sections]
    assert anchors == ["answers", "difference", "frontier", "shared", "specs", "reading"]


def test_every_row_has_as_many_cells_as_its_header(tmp_path: Path) -> None:
    low, high = two(tmp_path)
    third = a_study(tmp_path / "third", 0.7, scatter=2, name="x", seed=3)
    for paths in ((low, high), (low, high, third), (low, other_trials(tmp_path / "e", []))):
        document = compose_versus(findings(*paths))
        grids = [b for s in document.sections for b in s.blocks if isinstance(b, Grid)]
        assert len(grids) >= 2
        for grid in grids:
            assert {len(row) for row in grid.rows} <= {len(grid.header)}
        assert headline(findings(*paths)) == document.headline


def test_a_tie_is_doubtful_and_no_answer_is_none(tmp_path: Path) -> None:
    low, _ = two(tmp_path)
    near = a_study(tmp_path / "near", 0.41, scatter=1)
    assert compose_versus(findings(low, near)).is_doubtful
    empty = other_trials(tmp_path / "empty", [])
    assert not compose_versus(findings(low, empty)).is_answer


def test_page_and_markdown_say_it_and_escape_what_a_user_named(tmp_path: Path) -> None:
    low, _ = two(tmp_path)
    hostile = a_study(tmp_path / "<b>x&y", 0.9, scatter=1)
    document = compose_versus(findings(low, hostile))
    page, text = render_page(document), render_markdown(document)
    outside_code = "".join(line for line in text.splitlines() if not line.startswith("    "))
    for shown in (page, outside_code):
        assert "<b>x" not in shown
        assert "k2-loss 0.1" in shown
    assert "&lt;b&gt;x&amp;y" in page


def test_the_figure_is_left_out_where_nothing_was_evaluated(tmp_path: Path) -> None:
    a, b = (other_trials(tmp_path / name, []) for name in ("a", "b"))
    document = compose_versus(findings(a, b))
    assert "frontier" not in [section.anchor for section in document.sections]
    drawn = compose_versus(findings(*two(tmp_path)))
    assert any(isinstance(b, Figures) for s in drawn.sections for b in s.blocks)


def test_the_data_are_strict_json_and_complete(tmp_path: Path) -> None:
    found = findings(*two(tmp_path))
    data = versus_data(found)
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert data["headline"] == headline(found)
    assert [s["label"] for s in data["studies"]] == ["low", "high"]
    (pair,) = data["pairs"]
    assert (pair["of"], pair["minus"]) == ("high", "low")
    assert pair["contrast"]["is_told_apart"] is True
    assert data["shared"][1]["setting"] == "beta = 0 arm"
    assert data["num_unshared"] == 2
    assert data["differing"] == []
