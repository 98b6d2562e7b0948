"""The number of a flag in, the same number out, or one sentence with flag, allowed values and the value."""

from __future__ import annotations

import math
from collections.abc import Iterable

from kltune.errors import SpecError


def finite(flag: str, value: float) -> float:
    """Any number but infinity and NaN.

    Raises:
        SpecError: infinity or NaN.
    """
    if not math.isfinite(value):
        raise SpecError(f"{flag}: must be a finite number (got {value:g})")
    return value


def above_zero(flag: str, value: float) -> float:
    """A finite number above 0.

    Raises:
        SpecError: anything else.
    """
    if not (math.isfinite(value) and value > 0):
        raise SpecError(f"{flag}: must be above 0 (got {value:g})")
    return value


def not_negative(flag: str, value: float) -> float:
    """A finite number, 0 or more.

    Raises:
        SpecError: anything else.
    """
    if not (math.isfinite(value) and value >= 0):
        raise SpecError(f"{flag}: must be 0 or more (got {value:g})")
    return value


def one_or_more(flag: str, value: float) -> float:
    """A finite number, 1 or more.

    Raises:
        SpecError: anything else.
    """
    if not (math.isfinite(value) and value >= 1):
        raise SpecError(f"{flag}: must be 1 or more (got {value:g})")
    return value


def at_least_1(flag: str, value: int) -> int:
    """A count.

    Raises:
        SpecError: 0 or less.
    """
    if value < 1:
        raise SpecError(f"{flag}: must be a whole number of at least 1 (got {value})")
    return value


def one_of(flag: str, value: str, allowed: Iterable[str]) -> str:
    """One of the words allowed.

    Raises:
        SpecError: any other.
    """
    words = list(allowed)
    if value not in words:
        raise SpecError(f"{flag}: must be {', '.join(words[:-1])} or {words[-1]} (got {value!r})")
    return value
