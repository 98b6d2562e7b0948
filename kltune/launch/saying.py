"""Lines to the person at the terminal."""

from __future__ import annotations

import sys

from kltune.report.text import visible


def say(text: str) -> None:
    """One line on stderr; stdout is left to the result. Control characters in it can do nothing to a terminal."""
    sys.stderr.write(f"{visible(text)}\n")
    sys.stderr.flush()
