from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from kltune.tasks.calls_weighted import Part, WeightedScorer
from kltune.tasks.protocol import Prompt, Sample
from kltune.tasks.scorers import CallLimits, ScorerError, function_scorer

TWO = [Sample(Prompt("p", "q"), text, (1,), True) for text in ("one", "x")]


@dataclass(frozen=True)
class Gives:
    values: tuple[float | None, ...]
    name: str = "gives"

    def __call__(self, samples: Sequence[Sample]) -> list[float | None]:
        return list(self.values)


def weighted(*parts: tuple[float, tuple[float | None, ...]]) -> WeightedScorer:
    return WeightedScorer(tuple(Part(f"p{i}", w, Gives(v)) for i, (w, v) in enumerate(parts)))


def test_the_sum_is_weighted_and_its_parts_come_along_unweighted() -> None:
    scorer = weighted((1.0, (1.0, 2.0)), (-0.5, (4.0, 2.0)))
    found = scorer.detail(TWO)
    assert found.values == [-1.0, 1.0]
    assert found.parts == {"p0": [1.0, 2.0], "p1": [4.0, 2.0]}
    assert scorer.name == "1 p0 + -0.5 p1"
    assert scorer(TWO) == [-1.0, 1.0]


def test_a_part_that_cannot_score_adds_nothing_and_none_at_all_is_none() -> None:
    values = weighted((1.0, (None, None)), (2.0, (3.0, None)))(TWO)
    assert values[0] == 6.0
    assert math.isnan(values[1])


def test_a_part_with_the_wrong_length_is_refused() -> None:
    with pytest.raises(ScorerError, match=r"gives returned 1 score\(s\) for 2"):
        weighted((1.0, (1.0,)))(TWO)


def test_errors_of_a_part_come_along() -> None:
    def picky(completions: list[str]) -> list[float]:
        if "x" in completions:
            raise ValueError("no x")
        return [1.0] * len(completions)

    part = Part("picky", 1.0, function_scorer("r.py:picky", picky, limits=CallLimits(5.0, 0.5)))
    found = WeightedScorer((part, Part("g", 1.0, Gives((1.0, 1.0))))).detail(TWO)
    assert found.values == [2.0, 1.0]
    (problem,) = found.problems
    assert "completion 'x': scorer r.py:picky raised ValueError: no x" in problem
