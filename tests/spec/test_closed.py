from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import BeforeValidator, ValidationError

from kltune.spec.closed import Closed, FieldProblems
from kltune.spec.duration import seconds


class Section(Closed):
    number: int = 1
    flag: bool = False
    either: int | bool = 0
    share: float | None = None
    time: Annotated[float, BeforeValidator(seconds)] | None = None
    word: int | str = 0


def test_a_section_refuses_unknown_keys_and_change() -> None:
    with pytest.raises(ValidationError, match="extra_forbidden"):
        Section.model_validate({"numbr": 1})
    with pytest.raises(ValidationError, match="frozen"):
        Section().number = 2  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("name", ["number", "share"])
def test_true_is_not_the_number_one(name: str) -> None:
    with pytest.raises(ValidationError, match="should not be a truth value"):
        Section.model_validate({name: True})


@pytest.mark.parametrize("name", ["number", "share"])
def test_a_text_is_no_number_either_unless_the_field_reads_texts(name: str) -> None:
    with pytest.raises(ValidationError, match="should be a number, not a text"):
        Section.model_validate({name: "1"})
    assert Section.model_validate({"time": "2m", "word": "1"}).time == 120


def test_a_field_that_may_be_a_truth_value_takes_one() -> None:
    section = Section.model_validate({"flag": True, "either": True})
    assert section.flag is True
    assert section.either is True


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_non_finite_numbers_are_refused(number: float) -> None:
    with pytest.raises(ValidationError, match="finite"):
        Section.model_validate({"share": number})


def test_field_problems_keep_their_pairs_and_read_as_text() -> None:
    problems = FieldProblems(("a.b", "must be 1"), ("c", "must be 2"))
    assert problems.pairs == (("a.b", "must be 1"), ("c", "must be 2"))
    assert str(problems) == "a.b: must be 1; c: must be 2"
