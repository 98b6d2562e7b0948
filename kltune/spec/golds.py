"""A name that a spec gives to a gold in, what is wrong with it out."""

from __future__ import annotations

import re
from typing import Final

GOLD_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,39}")
"""How a gold beside the objective's may be called: its metrics are ``eval/gold_NAME`` and ``eval/gold_NAME_se``."""


def name_problem(name: str) -> str | None:
    """Say why a gold can't be called ``name``; none where it can."""
    if GOLD_NAME.fullmatch(name) is None:
        return (
            "a gold's name must be up to 40 lowercase letters, digits, dashes or underscores, a letter "
            f"first (got {name!r})"
        )
    if name == "gold":
        return f"is the name of the objective's own gold, which task.gold gives (got {name!r})"
    if name == "se" or name.endswith("_se"):
        return (
            f"must not end like a standard error: eval/gold_{name} would be read as one of another "
            f"gold (got {name!r})"
        )
    return None
