"""The judge's section: nothing in it may be a key."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from kltune.spec.judge import JudgeSpec, fields_of
from kltune.spec.problems import describe


def problems(**fields: Any) -> list[str]:
    try:
        JudgeSpec.model_validate({"judge": "m", "url": "http://localhost/v1", **fields})
    except ValidationError as error:
        return [str(problem) for problem in describe(error.errors(), JudgeSpec)]
    return []


@pytest.mark.parametrize(
    "fields",
    [
        {"key_env": "sk-secret-1"},
        {"url": "http://me:sk-secret-1@host/v1"},
        {"url": "https://host/v1?key=sk-secret-1"},
    ],
)
def test_a_key_in_the_spec_is_refused_and_not_repeated(fields: dict[str, Any]) -> None:
    (problem,) = problems(**fields)
    assert "sk-secret-1" not in problem
    assert "key" in problem


def test_what_does_not_add_up_is_named_by_field() -> None:
    assert problems(scale=[5, 1]) == ["scale: must go from low to high (got [5.0, 1.0])"]
    assert problems(budget={"money": 3}) == ["budget.money: needs price_in and price_out"]
    assert "must be like http://localhost:8000/v1" in problems(url="localhost:8000")[0]
    assert problems(price_in=1, price_out=2, budget={"money": 3}) == []


def test_a_question_must_show_the_answer_and_name_columns_only() -> None:
    assert "must hold {completion}" in problems(ask="how good is {prompt}?")[0]
    assert "{a.b} is no name of a column" in problems(ask="{a.b} {completion}")[0]
    assert problems(ask='{completion} as {{"score": 1}}') == []
    assert fields_of("{a} {{b}} {c} {a}") == ("a", "c")


def test_the_address_is_taken_up_to_the_version() -> None:
    for given in ("http://h/v1", "http://h/v1/", "http://h/v1/chat/completions"):
        assert JudgeSpec(judge="m", url=given).url == "http://h/v1"
