from __future__ import annotations

from pathlib import Path

from fake_study import trial, write_study

from kltune.report.charts.axes import (
    axis,
    colour_bar,
    layout,
    log_colour_bar,
    log_ticks,
    mark_upright,
    markup,
    setting_words,
    with_gaps,
    wrapped,
)
from kltune.report.rows import read_study
from kltune.spec.trial import KLUnit


def test_markup_of_a_stranger_is_shown_and_not_followed() -> None:
    hostile = "<b>x</b> %{customdata} & \x00\u202e"
    assert markup(hostile) == "&lt;b&gt;x&lt;/b&gt; %&#123;customdata} &amp; \\u0000\\u202e"


def test_ticks_are_both_ends_and_the_powers_of_ten_that_keep_clear_of_them() -> None:
    assert log_ticks(0.002, 3) == [0.002, 0.01, 0.1, 1, 3]
    assert log_ticks(0.0099, 0.5) == [0.0099, 0.1, 0.5]
    assert log_ticks(0.1, 0.1) == [0.1]


def test_a_logarithmic_colour_bar_is_labelled_with_the_numbers_themselves() -> None:
    bar = log_colour_bar("beta", 0.001, 1)
    assert (bar["cmin"], bar["cmax"]) == (-3, 0)
    assert bar["colorbar"]["ticktext"] == ["0.001", "0.01", "0.1", "1"]
    assert colour_bar("value", 0.25, 1.0)["cmin"] == 0.25


def test_lists_are_joined_with_a_gap_between_and_none_at_the_ends() -> None:
    assert with_gaps([[1, 2], [3], [4]]) == [1, 2, None, 3, None, 4]
    assert with_gaps([[1], [2]], gap=0) == [1, 0, 2]
    assert with_gaps([]) == []


def test_an_upright_adds_to_what_the_layout_has_and_lifts_the_legend() -> None:
    frame = layout(300, xaxis=axis("step"))
    mark_upright(frame, 20, "peak")
    mark_upright(frame, 40, "end")
    assert [shape["x0"] for shape in frame["shapes"]] == [20, 40]
    assert [note["text"] for note in frame["annotations"]] == ["peak", "end"]
    assert frame["legend"]["y"] > layout(300)["legend"]["y"]


def test_a_long_title_is_broken_between_words() -> None:
    assert (
        wrapped("beta (reward per nat of sequence KL)") == "beta (reward per nat of<br>sequence KL)"
    )


def test_a_setting_is_said_in_short_words(tmp_path: Path) -> None:
    (row,) = read_study(write_study(tmp_path, [trial(0.1)])).trials
    assert setting_words(row, KLUnit.TOKEN) == "k2-loss 0.1"
