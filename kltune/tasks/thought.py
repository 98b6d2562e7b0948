"""A completion's whole text in, what is thought and what is answered out: a record keeps both in one."""

from __future__ import annotations


def split_thought(text: str, answer_after: str | None) -> tuple[str, str]:
    """(thought with its mark, answer); without the mark in ``text`` all is thought, without a mark to look for nothing is."""
    if answer_after is None:
        return "", text
    place = text.find(answer_after)
    if place < 0:
        return text, ""
    end = place + len(answer_after)
    return text[:end], text[end:]
