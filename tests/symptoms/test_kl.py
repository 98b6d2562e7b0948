from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from kltune.symptoms.curve import Curve, Quantity
from kltune.symptoms.kl import kl_jump, kl_over_limit, negative_kl


def kl(*values: float, quantity: Quantity = Quantity.KL_TOKEN) -> Curve:
    return Curve.of_rows((i + 1, {quantity: value}) for i, value in enumerate(values))


def k1(seq: Sequence[float], se: float, tokens: int = 10) -> Curve:
    return Curve.of_rows(
        (i + 1, {Quantity.K1_SEQ: k, Quantity.K1_SEQ_SE: se, Quantity.K1_TOKEN: k / tokens})
        for i, k in enumerate(seq)
    )


def test_kl_over_its_limit_says_unit_limit_and_steps() -> None:
    symptom = kl_over_limit(kl(0.1, 0.6, 0.7, 0.612), limit=0.5)
    assert symptom is not None
    assert symptom.detail == "kl 0.612 > 0.5 nats/token for 3 steps (steps 2-4)"
    assert (symptom.first_step, symptom.last_step) == (2, 4)


def test_the_limit_on_sequences_is_judged_on_sequences() -> None:
    curve = kl(6, 7, quantity=Quantity.KL_SEQ)
    symptom = kl_over_limit(curve, limit=5, quantity=Quantity.KL_SEQ, patience=2, noun="evaluation")
    assert symptom is not None
    assert symptom.detail == "kl 7 > 5 nats/sequence for 2 evaluations (steps 1-2)"
    assert kl_over_limit(curve, limit=5, patience=2) is None


def test_the_limit_itself_and_one_spike_are_allowed() -> None:
    assert kl_over_limit(kl(0.5, 0.5, 0.5), limit=0.5) is None
    assert kl_over_limit(kl(0.6, 0.4, 0.6), limit=0.5) is None


def test_a_jump_is_a_rise_in_one_step_that_stays() -> None:
    symptom = kl_jump(kl(0.02, 0.03, 0.04, 2.0, 1.9))
    assert symptom is not None
    assert symptom.first_step == 4
    assert "from 0.03 (median of 3 steps (steps 1-3)) to 2 nats/token at step 4" in symptom.detail


def test_a_spike_that_falls_back_is_no_jump() -> None:
    assert kl_jump(kl(0.02, 0.03, 0.04, 2.0, 0.05)) is None
    assert kl_jump(kl(0.02, 0.03, 0.04, 2.0)) is None


def test_a_steady_rise_is_no_jump() -> None:
    assert all(kl_jump(kl(*(0.1 * i for i in range(1, n)))) is None for n in range(2, 60))


def test_a_large_kl_that_gets_half_again_as_large_is_no_jump() -> None:
    assert kl_jump(kl(2.0, 2.1, 2.0, 3.5, 3.6)) is None
    assert kl_jump(kl(2.0, 2.1, 2.0, 9.0, 9.0)) is not None


def test_a_tiny_kl_that_multiplies_is_no_jump() -> None:
    assert kl_jump(kl(1e-6, 1e-6, 1e-2, 2e-2)) is None


def test_negative_k1_at_two_steps_in_a_row_is_a_fault() -> None:
    symptom = negative_kl(k1([0.1, -3.0, -2.5], se=0.3))
    assert symptom is not None
    assert symptom.first_step == 2
    assert "mean k1 -2.5 ± 0.3 nats/sequence" in symptom.detail
    assert negative_kl(k1([-3.0, 0.1, -2.5], se=0.3)) is None


@pytest.mark.parametrize(
    ("seq", "se"),
    [
        ([-0.5, -0.5, -0.5], 0.2),  # 2.5 standard errors
        ([-0.04, -0.04, -0.04], 1e-6),  # clear, and too small to be anything but rounding
        ([2.0, 3.0, 4.0], 0.01),
    ],
)
def test_small_negatives_are_noise(seq: list[float], se: float) -> None:  # field case E1
    assert negative_kl(k1(seq, se)) is None


def test_without_standard_errors_a_large_negative_k1_is_seen_by_the_second_step() -> None:
    curve = kl(-0.4, -0.4, -0.4, quantity=Quantity.K1_TOKEN)  # field case E7
    assert negative_kl(curve.up_to(1)) is None
    symptom = negative_kl(curve.up_to(2))
    assert symptom is not None
    assert "mean k1 -0.4 nats/token" in symptom.detail


def test_three_tokens_with_a_slightly_negative_k1_are_noise_and_k3_is_never_judged() -> None:
    # field cases A1 and A2: k1 mean -0.066667, k3 mean 0.057430
    values = {Quantity.K1_TOKEN: -0.066667, Quantity.K1_SEQ: -0.2, Quantity.KL_TOKEN: 0.05743}
    assert negative_kl(Curve.of_rows((step, values) for step in range(1, 9))) is None
    assert negative_kl(kl(-5.0, -5.0, -5.0)) is None  # KL_TOKEN is no k1


def test_steps_without_k1_are_left_out() -> None:
    assert negative_kl(kl(-0.4, math.nan, -0.4, quantity=Quantity.K1_TOKEN)) is not None
    assert negative_kl(kl()) is None
