"""The tables of a study's README: a part that is filled, a mean with its interval in words, a table."""

from __future__ import annotations

import sys

import pytest
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the scripts do it

from experiment_tables import filled, interval_words, markdown


def test_parts_of_the_readme_are_written_anew_and_nothing_else() -> None:
    text = "a\n<!-- one -->\nold\n<!-- /one -->\nb <!-- two --><!-- /two --> c\n"
    once = filled(text, {"one": "| x |\n", "two": "y"})
    assert once == ("a\n<!-- one -->\n| x |\n<!-- /one -->\nb <!-- two -->\ny\n<!-- /two --> c\n")
    assert filled(once, {"one": "| x |\n", "two": "y"}) == once
    assert filled(text, {}) == text


@pytest.mark.parametrize("text", ["no place", "<!-- one --> never closed"])
def test_a_part_without_a_place_is_a_mistake(text: str) -> None:
    with pytest.raises(AssertionError, match="no place for one"):
        filled(text, {"one": "x"})


def test_an_interval_in_words() -> None:
    found = {"mean": 0.913, "low": 0.7249, "high": 1.0951}
    assert interval_words(found) == "0.91 (0.72 to 1.10)"
    assert interval_words(found, 1) == "0.9 (0.7 to 1.1)"
    assert interval_words({"mean": -0.001, "low": -0.5, "high": 0.0}) == "0.00 (-0.50 to 0.00)"


def test_a_table_has_a_head_and_a_line_a_row() -> None:
    assert markdown(["a", "b"], [["x", 1], ["y", 2.5]]) == (
        "| a | b |\n| --- | --- |\n| x | 1 |\n| y | 2.5 |"
    )
