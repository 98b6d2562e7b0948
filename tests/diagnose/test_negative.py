from __future__ import annotations

import pytest
from diagnose_case import ramp, run_log

from kltune.diagnose.negative import k1_of, negative_over_run
from kltune.grade import Grade
from kltune.symptoms.curve import Quantity

TOKEN, SEQ = Quantity.K1_TOKEN, Quantity.K1_SEQ


@pytest.mark.parametrize(
    ("quantity", "mean", "grade"),
    [
        (SEQ, -20.0, Grade.FAIL),
        (SEQ, -0.5, Grade.WARN),
        (SEQ, -0.05, None),
        (TOKEN, -0.3, Grade.FAIL),
        (TOKEN, -0.06, Grade.WARN),
        (TOKEN, -0.02, Grade.WARN),
        (TOKEN, -5e-4, None),
        (TOKEN, 0.02, None),
    ],
)
def test_a_mean_below_0_is_told_in_its_own_unit_without_a_length(
    quantity: Quantity, mean: float, grade: Grade | None
) -> None:
    found = negative_over_run(run_log({quantity: ramp(mean, mean, 100, noise=0.05 * abs(mean))}))
    assert (found.grade if found else None) == grade


def test_noise_around_0_is_silent() -> None:
    """Field case A1: single steps of -0.01 nats per token."""
    assert negative_over_run(run_log({TOKEN: ramp(0.0, 0.0, 100, noise=0.01)})) is None
    assert negative_over_run(run_log({TOKEN: [*[0.001] * 60, -0.01, *[0.001] * 39]})) is None


def test_a_second_half_below_0_is_told_with_its_steps() -> None:
    found = negative_over_run(run_log({TOKEN: [*[0.2] * 50, *ramp(-0.02, -0.02, 50, noise=0.001)]}))
    assert found is not None
    assert (found.first_step, found.last_step) == (51, 100)


def test_with_a_length_the_limits_of_a_sequence_are_those_of_its_tokens() -> None:
    values = {SEQ: ramp(-0.5, -0.5, 100, noise=0.01), Quantity.LENGTH: [4000.0] * 100}
    assert negative_over_run(run_log(values)) is None


def test_few_steps_tell_only_what_lies_far_below() -> None:
    assert negative_over_run(run_log({SEQ: [-20.0] * 5})) is not None
    assert negative_over_run(run_log({TOKEN: [-0.066667] * 10})) is None


def test_a_kl_that_is_k1_is_a_log_ratio() -> None:
    run = run_log({Quantity.KL_SEQ: [-1.0] * 3}, estimators={Quantity.KL_SEQ: "k1"})
    found = k1_of(run)
    assert found is not None
    assert found[0] is SEQ
    assert k1_of(run_log({Quantity.KL_SEQ: [1.0]}, estimators={Quantity.KL_SEQ: "k3"})) is None
