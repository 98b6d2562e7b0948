from __future__ import annotations

import json

import pytest
from validate_case import validation

from kltune.grade import Grade
from kltune.metrics.jsonl import encode
from kltune.validate.result import Validation

P, W, F = Grade.PASS, Grade.WARN, Grade.FAIL


@pytest.mark.parametrize(
    ("grades", "verdict"),
    [((P, P), "go"), ((P, W, P), "go with warnings"), ((F, P), "no-go"), ((W, F, P), "no-go")],
)
def test_the_worst_line_decides(grades: tuple[Grade, ...], verdict: str) -> None:
    found = validation(*grades)
    assert found.verdict == verdict
    assert found.headline().lower().startswith(verdict)


def test_a_validation_comes_back_from_its_json() -> None:
    found = validation(P, W, F)
    text = encode(found.as_json())
    assert Validation.from_json(json.loads(text, parse_constant=pytest.fail)) == found
