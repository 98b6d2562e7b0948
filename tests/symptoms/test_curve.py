from __future__ import annotations

import math

from kltune.symptoms.curve import Curve, Quantity


def test_what_a_step_did_not_log_is_nan_and_not_known() -> None:
    curve = Curve.of_rows([(1, {Quantity.BETA: 0.1}), (2, {}), (5, {Quantity.BETA: math.inf})])
    assert curve.steps == (1, 2, 5)
    assert curve.known(Quantity.BETA) == [(1, 0.1)]
    assert curve.has(Quantity.BETA)
    assert not curve.has(Quantity.GOLD)


def test_a_curve_up_to_a_step_knows_nothing_later() -> None:
    curve = Curve.of_rows([(step, {Quantity.PROXY: float(step)}) for step in (1, 2, 5, 9)])
    assert curve.up_to(5).known(Quantity.PROXY) == [(1, 1.0), (2, 2.0), (5, 5.0)]
    assert curve.up_to(0).steps == ()
