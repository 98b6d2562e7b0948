from __future__ import annotations

import math

import pytest

from kltune.tasks.calls_checked import (
    ScorerError,
    checked_scores,
    described,
    of_sample,
    said,
    where_raised,
)
from kltune.tasks.protocol import Prompt, Sample

TWO = [Sample(Prompt("p1", "q"), text, (1,), True) for text in ("one", "two")]


def test_numbers_truth_values_and_none_become_floats() -> None:
    scores = checked_scores([True, None], TWO, "s")
    assert scores[0] == 1.0
    assert math.isnan(scores[1])


def test_what_is_no_score_is_named_with_its_completion() -> None:
    with pytest.raises(ScorerError, match=r"a list \(\[1\]\) for completion 1 of 2 \('two'\)"):
        checked_scores([0, [1]], TWO, "s")


def test_a_sample_is_shown_short_and_escaped() -> None:
    long = Sample(Prompt("p1", "q"), "\x1b[31m" + "a" * 100, (1,), True)
    shown = of_sample(long)
    assert shown.startswith("prompt 'p1', completion '\\x1b[31maaa")
    assert shown.endswith("...'")
    assert len(shown) < 110


def test_a_call_that_does_not_fit_has_no_place() -> None:
    def function(a: int) -> int:
        return a

    assert where_raised(ValueError("never raised"), function) == ""


def test_values_and_errors_are_shown_short_whatever_they_are() -> None:
    class Rude:
        def __repr__(self) -> str:
            raise ValueError("no")

    class RudeError(Exception):
        def __str__(self) -> str:
            raise ValueError("no")

    assert described(10**399) == "an integer of about 400 digits"
    assert described(10**9999) == "an integer of about 10000 digits"
    assert described(7) == "7"
    assert described(Rude()) == "a Rude (its repr raises ValueError)"
    assert said(RudeError()) == "(its text can't be had: ValueError)"
    assert len(said(ValueError("x" * 10_000))) < 500
