from __future__ import annotations

import json
import math

import pytest

from kltune.report.charts.numbers import lean, short


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.123456, "0.1235"),
        (12.0, "12"),
        (-0.0, "0"),
        (1234567.0, "1235000.0"),
        (3.00001e-7, "3e-07"),
        (7, "7"),
        (1234567, "1234567"),
    ],
)
def test_a_number_keeps_four_digits_and_no_more_characters_than_it_needs(
    value: float, text: str
) -> None:
    assert json.dumps(short(value)) == text


def test_what_is_not_finite_becomes_a_gap() -> None:
    assert lean([math.nan, math.inf, -math.inf, None, 1.5]) == [None, None, None, None, 1.5]


def test_fewer_digits_on_request() -> None:
    assert lean([1.23456, 98765.0], 2) == [1.2, 99000]
