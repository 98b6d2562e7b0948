from __future__ import annotations

import math

from kltune.diagnose.along import along, from_start, only, recent
from kltune.grade import Grade
from kltune.symptoms.curve import Curve, Quantity
from kltune.symptoms.text import length_change


def curve(lengths: list[float]) -> Curve:
    return Curve(tuple(range(1, len(lengths) + 1)), {Quantity.LENGTH: tuple(lengths)})


def test_a_sign_tells_where_it_began_and_whether_it_is_over() -> None:
    there = along(curve([*[10.0] * 20, *[50.0] * 20]), length_change, from_start, Grade.FAIL)
    assert there is not None
    assert (there.grade, there.last_step) == (Grade.FAIL, 40)
    over = along(
        curve([*[10.0] * 20, *[50.0] * 10, *[10.0] * 10]), length_change, from_start, Grade.FAIL
    )
    assert over is not None
    assert over.grade is Grade.WARN
    assert "not at the end any more" in over.detail


def test_steps_without_the_quantity_are_left_out() -> None:
    kept = only(curve([1.0, math.nan, 3.0]), (Quantity.LENGTH,))
    assert kept.steps == (1, 3)


def test_cuts_end_with_the_whole_run() -> None:
    assert list(from_start(curve([1.0] * 100)))[-1].steps[-1] == 100
    assert list(recent(curve([1.0] * 100)))[-1].steps == tuple(range(89, 101))
