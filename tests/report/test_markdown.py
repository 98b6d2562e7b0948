from __future__ import annotations

import html

import pytest

from kltune.report.document import (
    Card,
    Cards,
    Code,
    Document,
    Grid,
    Hero,
    Section,
    Tile,
)
from kltune.report.markdown import escaped, render_markdown

HOSTILE = (
    "<script>alert(1)</script>",
    "a | b `c` *d* _e_ [f](http://x) ~g~ $h$",
    "# heading",
    "1. list\n- item\n> quote\nheading\n===\nheading\n---",
    "![i](http://x)",
    "@everyone see :bomb:",
    "\\| &lt;",
)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_reads_the_same_after_entities_are_resolved(text: str) -> None:
    assert html.unescape(escaped(text)) == text


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_character_that_markdown_acts_on_is_left(text: str) -> None:
    bare = escaped(text)
    for active in "<|`*[]\\~$":
        assert active not in bare
    for line in bare.splitlines():
        assert not line.startswith(("#", "- ", "1. ", ">", "=", "-"))
    assert "@everyone" not in bare
    assert ":bomb:" not in bare


def test_ordinary_words_are_left_alone() -> None:
    text = "beta 0.1 reward per nat of sequence KL: stop at step 20, kl 0.6 > 0.5, target_kl (0.05), +0.1 to -0.2!"
    assert escaped(text) == text
    for cell in ("0.696", "+0.271", "-0.083 to +0.165"):
        assert escaped(cell) == cell


def test_a_completion_with_pipes_and_line_ends_stays_in_its_cell() -> None:
    cards = Cards("t", "p", (Card("start", "a | b\n| c |\n\n# d", "n"), Card("end", "x", "n")))
    text = render_markdown(Document("t", "s", "h", True, (Section("one", "one", (cards,)),)))
    row = next(line for line in text.splitlines() if line.startswith("| **answer**"))
    assert row.count("|") == 4


def test_every_row_of_a_table_has_the_same_number_of_cells() -> None:
    grid = Grid(("a|b", "c"), (("1", "2|3"), ("", "4")))
    text = render_markdown(Document("t", "s", "h", True, (Section("one", "one", (grid,)),)))
    assert {line.count("|") for line in text.splitlines() if line.startswith("|")} == {3}


def test_a_command_stands_as_code_whatever_it_holds() -> None:
    code = Code("kltune sweep '`x`' | cat")
    text = render_markdown(Document("t", "s", "h", True, (Section("one", "one", (code,)),)))
    assert "\n    kltune sweep '`x`' | cat\n" in text


def test_the_first_screen_is_a_short_list_with_its_command() -> None:
    tiles = (Tile("gold", "1.0", "95 % | interval"), Tile("KL", "0.2 nats/token"))
    hero = Hero((("beta", "0.1 <per> nat"),), tiles, "kltune export 'a `b`' --to trl")
    text = render_markdown(Document("t", "s", "h", True, (Section("one", "one", (hero,)),)))
    assert "\n- **beta**: 0.1 &#60;per> nat\n" in text
    assert "\n- **gold**: 1.0 (95 % &#124; interval)\n- **KL**: 0.2 nats/token\n" in text
    assert "\n    kltune export 'a `b`' --to trl\n" in text


def test_why_a_prompt_is_shown_and_what_changed_stand_with_its_cards() -> None:
    pair = (Card("start", "a", "n"), Card("end", "b", "n", "since the start: gold -1.000"))
    texts = [
        render_markdown(Document("t", "s", "h", True, (Section("one", "one", (block,)),)))
        for block in (Cards("t", "p", pair, "Chosen | by"), Cards("t", "p", pair[:1]))
    ]
    assert "\nChosen &#124; by\n" in texts[0]
    assert "| **change** |  | since the start: gold -1.000 |" in texts[0]
    assert "change" not in texts[1]
