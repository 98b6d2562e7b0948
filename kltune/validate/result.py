"""A validation, as values; and the same as one strict JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kltune.grade import Grade, worst
from kltune.metrics.jsonl import SCHEMA


@dataclass(frozen=True, slots=True)
class Line:
    """One check."""

    name: str
    """For programs, e.g. ``kl_smooth``."""
    title: str
    grade: Grade
    number: float | None
    """What was measured; none: it could not be."""
    unit: str
    shown: str
    """The number with its unit, for people."""
    threshold: str
    """What would have been a warning or a fail."""
    meaning: str
    """What it means here, in one or two sentences."""
    action: str = ""
    """What to do about it; empty where nothing is to be done."""


@dataclass(frozen=True, slots=True)
class Validation:
    """The go / no-go of a study."""

    name: str
    setting: str
    """The recommended setting and where to stop; empty where there is none."""
    lines: tuple[Line, ...]
    untested: tuple[str, ...]
    """What nobody has looked at."""

    @property
    def grade(self) -> Grade:
        """The worst of the lines."""
        return worst(line.grade for line in self.lines)

    @property
    def verdict(self) -> str:
        """``go``, ``go with warnings`` or ``no-go``."""
        words = {Grade.PASS: "go", Grade.WARN: "go with warnings", Grade.FAIL: "no-go"}
        return words[self.grade]

    def of_grade(self, grade: Grade) -> tuple[Line, ...]:
        """The lines that came out so."""
        return tuple(line for line in self.lines if line.grade is grade)

    def headline(self) -> str:
        """The verdict in one sentence."""
        counts = {grade: len(self.of_grade(grade)) for grade in Grade}
        parts = [f"{counts[Grade.PASS]} of {len(self.lines)} checks passed"]
        if counts[Grade.WARN]:
            parts.append(f"{counts[Grade.WARN]} warned")
        if counts[Grade.FAIL]:
            parts.append(f"{counts[Grade.FAIL]} failed")
        verdict = self.verdict.capitalize()
        return f"{verdict}: {', '.join(parts)}."

    def as_json(self) -> dict[str, Any]:
        """Plain values; a number that could not be measured is null."""
        return {
            "schema": SCHEMA,
            "name": self.name,
            "verdict": self.verdict,
            "setting": self.setting,
            "lines": [{**asdict(line), "grade": line.grade.value} for line in self.lines],
            "untested": list(self.untested),
        }

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Validation:
        """Read what ``as_json`` wrote."""
        return cls(
            name=facts["name"],
            setting=facts["setting"],
            lines=tuple(_line(line) for line in facts["lines"]),
            untested=tuple(facts["untested"]),
        )


def _line(facts: Mapping[str, Any]) -> Line:
    rest: dict[str, Any] = {name: value for name, value in facts.items() if name != "grade"}
    return Line(grade=Grade(facts["grade"]), **rest)
