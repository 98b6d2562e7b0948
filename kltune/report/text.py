"""Any text in, text without hidden characters out."""

from __future__ import annotations

import unicodedata

_BIDI_CONTROLS = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)


def visible(text: str) -> str:
    """Write control characters, direction overrides and lone surrogates as escapes that can be seen."""
    if text.isascii() and text.isprintable():
        return text  # most of them
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", "    ")
    return "".join(c if c == "\n" or not _is_hidden(c) else f"\\u{ord(c):04x}" for c in text)


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs") or character in _BIDI_CONTROLS
