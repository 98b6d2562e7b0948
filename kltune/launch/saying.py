"""Lines to the person at the terminal."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """One line on stderr; stdout is left to the result."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
