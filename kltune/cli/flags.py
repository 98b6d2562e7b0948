"""The text of a flag in, its value out, or a message that names what is allowed."""

from __future__ import annotations

import math

import typer


def count(text: str) -> int:
    """Read a whole number of at least 1.

    Raises:
        typer.BadParameter: anything else.
    """
    return _whole_number(text, at_least=1)


def seed(text: str) -> int:
    """Read a whole number of at least 0.

    Raises:
        typer.BadParameter: anything else.
    """
    return _whole_number(text, at_least=0)


def share(text: str) -> float:
    """Read a number of at least 0.

    Raises:
        typer.BadParameter: anything else.
    """
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < math.inf:
        raise typer.BadParameter(f"must be a number of at least 0 (got {text!r})")
    return number


def _whole_number(text: str, at_least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = at_least - 1
    if number < at_least:
        raise typer.BadParameter(f"must be a whole number of at least {at_least} (got {text!r})")
    return number
