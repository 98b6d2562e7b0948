"""A spec's precision and limits in, whether a difference is much out."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kltune.check.thresholds import GAPS, Gaps
from kltune.grade import Grade, worst


@dataclass(frozen=True, slots=True)
class Scale:
    """What the spec calls much."""

    precision: str
    """``fp32`` or ``bf16``."""
    least_kl: float | None
    """The smallest KL limit or target of the spec, nats per token."""
    most_kl: float | None
    """Its KL limit (else the guard's), nats per token."""

    @property
    def gaps(self) -> Gaps:
        """What arithmetic may make at this precision."""
        return GAPS[self.precision]

    def grade(self, *gaps: float | None) -> Grade:
        """Of differences of a token's log-prob; one that is not finite fails."""
        return worst(self._grade(gap) for gap in gaps if gap is not None)

    def _grade(self, gap: float) -> Grade:
        if not abs(gap) <= self.gaps.fail:
            return Grade.FAIL
        return Grade.WARN if abs(gap) > self.gaps.warn else Grade.PASS


def size(gap: float) -> float:
    """For comparing: what is not finite is the largest."""
    return abs(gap) if math.isfinite(gap) else math.inf
