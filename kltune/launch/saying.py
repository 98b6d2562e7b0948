"""Lines to the person at the terminal."""

from __future__ import annotations

import sys

from kltune.masking import redact
from kltune.report.text import visible


def say(text: str) -> None:
    """One line on stderr; stdout is left to the result. Secrets in it are hidden, control characters shown."""
    sys.stderr.write(f"{visible(redact(text))}\n")
    sys.stderr.flush()
