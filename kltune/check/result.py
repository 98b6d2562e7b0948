"""A check of a spec, as values; and the same as one strict JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from kltune.grade import Grade, worst
from kltune.metrics.jsonl import SCHEMA


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that must hold before training."""

    name: str
    """For programs: ``tokenizer``, ``bos``, ``pad``, ``stop_ids``, ``template``, ``vocabulary``, ``weights``, ``padding``,
    ``logprobs``, ``temperature``, ``start_kl``, ``fixed_point``, ``sampler``, ``dropout``, ``mask``, ``proxy``,
    ``gold``, ``splits``, ``reward_scale``, ``controller``, ``memory``, ``spec``."""
    title: str
    """For people, what was asked: ``log-probs do not depend on padding``."""
    grade: Grade
    shown: str
    """What was found, with numbers and units."""
    remedy: str = ""
    """What to do; empty where nothing is to be done."""
    numbers: Mapping[str, float | None] = field(default_factory=dict[str, float | None])
    """The evidence by plain names; none where it could not be measured."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """All of them."""

    name: str
    """Of the spec."""
    lines: tuple[Line, ...]
    seconds: float
    skipped: tuple[str, ...] = ()
    """What was not looked at, and why."""

    @property
    def grade(self) -> Grade:
        """The worst of the lines."""
        return worst(line.grade for line in self.lines)

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "schema": SCHEMA,
            "name": self.name,
            "grade": self.grade.value,
            "lines": [{**asdict(line), "grade": line.grade.value} for line in self.lines],
            "skipped": list(self.skipped),
            "seconds": round(self.seconds, 2),
        }
