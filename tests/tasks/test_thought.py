from __future__ import annotations

import pytest

from kltune.tasks.thought import split_thought


@pytest.mark.parametrize(
    ("text", "mark", "parts"),
    [
        ("why </think> 4 </think>", "</think>", ("why </think>", " 4 </think>")),
        ("still thinking", "</think>", ("still thinking", "")),
        ("4", None, ("", "4")),
    ],
)
def test_the_first_mark_ends_the_thought(
    text: str, mark: str | None, parts: tuple[str, str]
) -> None:
    assert split_thought(text, mark) == parts
    assert "".join(parts) == text
