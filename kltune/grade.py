"""How a check came out; shared by every gate."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Grade(StrEnum):
    """How a check came out."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"


GRADE_STYLES = {Grade.PASS: "green", Grade.WARN: "yellow", Grade.FAIL: "bold red"}
"""Colours of a terminal."""


def worst(grades: Iterable[Grade]) -> Grade:
    """The worst of them; pass where there is none."""
    found = set(grades)
    return next((g for g in (Grade.FAIL, Grade.WARN) if g in found), Grade.PASS)
