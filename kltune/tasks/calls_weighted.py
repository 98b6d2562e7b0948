"""Several scorers and weights in, one scorer out: the weighted sum, with what each part gave beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kltune.tasks.protocol import Sample, Scorer
from kltune.tasks.scorers import ScorerError, Scores, detailed


@dataclass(frozen=True, slots=True)
class Part:
    """One scorer of a sum."""

    name: str
    weight: float
    scorer: Scorer


@dataclass(frozen=True, slots=True)
class WeightedScorer:
    """The sum of the parts' scores, each times its weight.

    A part that can't score a completion (None, NaN) adds nothing to it, as in TRL; where none can, neither can
    the sum.
    """

    parts: tuple[Part, ...]

    @property
    def name(self) -> str:
        """How reports and trackers call the sum: ``1 correct + 0.1 short``."""
        return " + ".join(f"{part.weight:g} {part.name}" for part in self.parts)

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        """Score ``samples``.

        Raises:
            ScorerError: a part failed.
        """
        return self.detail(samples).values

    def detail(self, samples: Sequence[Sample]) -> Scores:
        """Score ``samples``, and keep what each part gave.

        Raises:
            ScorerError: a part failed.
        """
        parts: dict[str, list[float]] = {}
        problems: list[str] = []
        for part in self.parts:
            scores = detailed(part.scorer, samples)
            if len(scores.values) != len(samples):
                raise ScorerError(
                    f"scorer {part.scorer.name} returned {len(scores.values)} score(s) for {len(samples)} "
                    "completion(s)"
                )
            parts[part.name] = scores.values
            problems += scores.problems
        values = [self._sum([parts[p.name][i] for p in self.parts]) for i in range(len(samples))]
        return Scores(values, parts, tuple(problems))

    def _sum(self, scores: Sequence[float]) -> float:
        known = [
            part.weight * score
            for part, score in zip(self.parts, scores, strict=True)
            if not math.isnan(score)
        ]
        return math.fsum(known) if known else math.nan
