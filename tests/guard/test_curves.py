from __future__ import annotations

import math

from kltune.guard.curves import (
    NAMES,
    checkpoints_of,
    curve_of,
    kl_curve,
    kl_quantity,
    lean,
)
from kltune.metrics.names import check_names
from kltune.metrics.record import StepMetrics
from kltune.spec.objective import ObjectiveSpec
from kltune.spec.trial import KLUnit
from kltune.symptoms.curve import Quantity
from kltune.trial.objective import EvalPoint


def test_the_names_are_registered() -> None:
    check_names(NAMES.values())


def test_steps_become_a_curve_and_what_was_not_measured_stays_unknown() -> None:
    history = [
        StepMetrics(0, 0, 1, 0.1, 1.0, 0.5, 0.2, 80, True, {"kl/k1_seq": -1.0}),
        StepMetrics(0, 0, 2, 0.2, 2.0, 0.6, 0.2, 80, True, {"tokens/repeated_frac": math.nan}),
    ]
    curve = curve_of(history)
    assert curve.known(Quantity.KL_TOKEN) == [(1, 0.1), (2, 0.2)]
    assert curve.known(Quantity.KL_SEQ) == [(1, 1.0), (2, 2.0)]
    assert curve.known(Quantity.PROXY) == [(1, 0.5), (2, 0.6)]
    assert curve.known(Quantity.K1_SEQ) == [(1, -1.0)]
    assert not curve.has(Quantity.REPEATED)
    assert not curve.has(Quantity.ENTROPY)


def test_evaluations_give_kl_in_both_units_without_step_0() -> None:
    curve = kl_curve([EvalPoint(0, (1.0,), 0.0, 0.0), EvalPoint(10, (1.0,), 0.3, 4.0)])
    assert curve.known(kl_quantity(KLUnit.TOKEN)) == [(10, 0.3)]
    assert curve.known(kl_quantity(KLUnit.SEQUENCE)) == [(10, 4.0)]


def test_checkpoints_are_healthy_in_order_and_know_whether_they_may_be_chosen() -> None:
    points = [
        EvalPoint(20, (0.5, 0.7), 0.9, 9.0),
        EvalPoint(0, (0.1, 0.1), 0.0, 0.0),
        EvalPoint(10, (0.4, 0.6), 0.2, 2.0),
        EvalPoint(30, (math.nan, 0.6), 0.2, 2.0),
    ]
    found = checkpoints_of(points, ObjectiveSpec(kl_limit=0.5), KLUnit.TOKEN)
    assert [(c.step, c.kl, c.is_allowed) for c in found] == [(10, 0.2, True), (20, 0.9, False)]
    sequences = checkpoints_of(points, ObjectiveSpec(), KLUnit.SEQUENCE)
    assert [c.kl for c in sequences] == [2.0, 9.0]


def test_a_lean_step_has_the_same_curve_and_little_else() -> None:
    values = dict.fromkeys((*NAMES.values(), "train/loss", "time/step_s"), 0.5)
    step = StepMetrics(0, 0, 1, 0.1, 1.0, 0.5, 0.2, 80, True, values)
    assert curve_of([lean(step)]) == curve_of([step])
    assert set(lean(step).values) == set(NAMES.values())
