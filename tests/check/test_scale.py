from __future__ import annotations

import math

import pytest

from kltune.check.scale import Scale, size
from kltune.grade import Grade


@pytest.mark.parametrize(
    ("gap", "fp32", "bf16"),
    [
        (1e-5, Grade.PASS, Grade.PASS),
        (-5e-4, Grade.WARN, Grade.PASS),
        (0.2, Grade.FAIL, Grade.WARN),
        (-2.0, Grade.FAIL, Grade.FAIL),
        (math.nan, Grade.FAIL, Grade.FAIL),
        (math.inf, Grade.FAIL, Grade.FAIL),
    ],
)
def test_a_gap_is_judged_by_size_and_precision(gap: float, fp32: Grade, bf16: Grade) -> None:
    assert Scale("fp32", None, None).grade(1e-9, gap, None) is fp32
    assert Scale("bf16", None, None).grade(gap) is bf16


def test_what_is_not_finite_is_the_largest() -> None:
    assert max(math.nan, -3.0, 2.0, key=size) is not None
    assert math.isnan(max(-3.0, math.nan, 2.0, key=size))
