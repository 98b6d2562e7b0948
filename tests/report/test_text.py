from __future__ import annotations

from kltune.report.text import visible


def test_hidden_characters_are_shown_as_escapes() -> None:
    assert visible("a\u202eb\x00c\ud800") == "a\\u202eb\\u0000c\\ud800"


def test_ordinary_text_of_any_script_stays() -> None:
    text = "eggs 🥚👩‍🍳 عشر دقائق\nשלום"
    assert visible(text) == text


def test_line_ends_and_tabs_become_plain() -> None:
    assert visible("a\r\nb\rc\td") == "a\nb\nc    d"
