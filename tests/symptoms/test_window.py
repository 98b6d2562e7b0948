from __future__ import annotations

import math

import pytest

from kltune.symptoms.curve import Curve, Quantity
from kltune.symptoms.window import early_and_late, late, steps_words


def curve(*values: float) -> Curve:
    return Curve.of_rows((i + 1, {Quantity.PROXY: value}) for i, value in enumerate(values))


def test_windows_do_not_overlap() -> None:
    assert early_and_late(curve(1, 2, 3), Quantity.PROXY, 2) is None
    found = early_and_late(curve(1, 3, 9, 5, 7), Quantity.PROXY, 2)
    assert found is not None
    assert [(w.first_step, w.last_step, w.mean, w.se) for w in found] == [
        (1, 2, 2.0, pytest.approx(1.0)),
        (4, 5, 6.0, pytest.approx(1.0)),
    ]


def test_steps_that_logged_nothing_are_left_out_of_a_window() -> None:
    found = late(curve(1, math.nan, 5, math.nan), Quantity.PROXY, 2)
    assert found is not None
    assert (found.first_step, found.last_step, found.mean) == (1, 3, 3.0)
    assert late(curve(1, math.nan), Quantity.PROXY, 2) is None


def test_one_value_alone_has_no_standard_error() -> None:
    found = late(curve(4), Quantity.PROXY, 1)
    assert found is not None
    assert found.se == math.inf


def test_steps_in_words() -> None:
    assert steps_words([7]) == "1 step (step 7)"
    assert steps_words([10, 20], "evaluation") == "2 evaluations (steps 10-20)"
