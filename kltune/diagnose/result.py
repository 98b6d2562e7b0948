"""A diagnosis of one run, as values; and the same as one strict JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from kltune.diagnose.runlog import Reading
from kltune.grade import Grade, worst
from kltune.metrics.jsonl import SCHEMA

HEALTHY = "healthy"
"""The condition of a run in which no rule found anything."""
UNTOLD = "too little to tell"
"""The condition of a run whose log holds nothing that a rule could look at."""

SHORT = "too short to tell"
"""The condition of a run in which no rule found anything, of fewer than ``LEAST_STEPS`` logged steps or `is_early`."""
LEAST_STEPS = 10


@dataclass(frozen=True, slots=True)
class Sign:
    """What a rule saw: the numbers, not yet what they come from."""

    name: str
    """For programs, e.g. ``kl_explosion``; kltune.diagnose.causes explains each."""
    grade: Grade
    first_step: int
    """Where it began."""
    last_step: int
    """The last step that it was seen at."""
    detail: str
    """The evidence in a sentence or two: numbers, units, steps."""
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])
    """The same for programs, units in the names."""
    cause: str = ""
    """The cause that the numbers speak for; empty: not told."""


@dataclass(frozen=True, slots=True)
class Cause:
    """What a finding may come from, and what to do about it."""

    name: str
    """For programs, e.g. ``learning_rate_too_high``."""
    text: str
    first: str
    """The first thing to do if it is this."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A sign with its explanation."""

    sign: Sign
    title: str
    causes: tuple[Cause, ...]
    """In order: the likeliest first."""
    checks: tuple[str, ...] = ()
    """Titles of the rules that it answers: its own, and those of what it explains."""

    @property
    def first(self) -> str:
        """The first thing to do."""
        return self.causes[0].first if self.causes else ""

    @property
    def condition(self) -> str:
        """Its name, and its cause in brackets where the numbers tell it."""
        return f"{self.sign.name} ({self.sign.cause})" if self.sign.cause else self.sign.name

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        sign = {**asdict(self.sign), "grade": self.sign.grade.value}
        causes = [asdict(cause) for cause in self.causes]
        return {
            **sign,
            "title": self.title,
            "checks": list(self.checks),
            "causes": causes,
            "first": self.first,
        }


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All that the rules have to say of one run."""

    path: str
    framework: str
    kind: str
    """What the log is, for people."""
    steps: tuple[int, int] | None
    """First and last; none where the log holds no step."""
    num_steps: int
    """With a number."""
    findings: tuple[Finding, ...]
    """The worst first."""
    passed: tuple[str, ...]
    """Titles of the rules that looked and found nothing."""
    untold: tuple[tuple[str, str], ...]
    """(what the log lacks, the title of a rule that needs it)."""
    readings: tuple[Reading, ...]
    """How each quantity was read: names, units, why."""
    facts: Mapping[str, float | str]
    notes: tuple[str, ...]
    is_early: bool = False
    """Whether the log has a KL and a reward, and too short a course of them to tell whether the run stands still."""
    restart: str = ""
    """How many steps were logged again after a restart, for people; empty: none."""

    @property
    def grade(self) -> Grade:
        """The worst of the findings."""
        return worst(finding.sign.grade for finding in self.findings)

    @property
    def condition(self) -> str:
        """The worst finding's name and cause; ``healthy`` where none warns and the run is long enough for it."""
        if self.grade is not Grade.PASS:
            return self.findings[0].condition
        if not self.passed:
            return UNTOLD
        return SHORT if self.is_early or self.num_steps < LEAST_STEPS else HEALTHY

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "schema": SCHEMA,
            "path": self.path,
            "framework": self.framework,
            "kind": self.kind,
            "steps": list(self.steps) if self.steps else None,
            "num_steps": self.num_steps,
            "restart": self.restart or None,
            "grade": self.grade.value,
            "condition": self.condition,
            "findings": [finding.as_json() for finding in self.findings],
            "passed": list(self.passed),
            "untold": [{"lacks": lacks, "question": title} for lacks, title in self.untold],
            "readings": [{**asdict(one), "quantity": one.quantity.value} for one in self.readings],
            "facts": dict(self.facts),
            "notes": list(self.notes),
        }
