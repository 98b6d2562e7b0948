from __future__ import annotations

import math

import pytest

from kltune.errors import SpecError
from kltune.explain import flags


def test_good_numbers_come_back() -> None:
    assert flags.finite("--a", -2.0) == -2.0
    assert flags.above_zero("--a", 0.5) == 0.5
    assert flags.not_negative("--a", 0.0) == 0.0
    assert flags.at_least_1("--a", 1) == 1
    assert flags.one_of("--a", "x", ["x", "y"]) == "x"


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_infinity_and_nan_are_never_a_number(value: float) -> None:
    for check in (flags.finite, flags.above_zero, flags.not_negative):
        with pytest.raises(SpecError, match=r"^--a: must be .* \(got -?(inf|nan)\)$"):
            check("--a", value)


def test_the_message_names_flag_allowed_and_value() -> None:
    with pytest.raises(SpecError, match=r"^--a: must be above 0 \(got 0\)$"):
        flags.above_zero("--a", 0)
    with pytest.raises(SpecError, match=r"^--a: must be 0 or more \(got -1\)$"):
        flags.not_negative("--a", -1)
    with pytest.raises(SpecError, match=r"^--a: must be a whole number of at least 1 \(got 0\)$"):
        flags.at_least_1("--a", 0)
    with pytest.raises(SpecError, match=r"^--a: must be x, y or z \(got 'q'\)$"):
        flags.one_of("--a", "q", ["x", "y", "z"])
