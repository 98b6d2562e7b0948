from __future__ import annotations

from kltune.symptoms.curve import Curve, Quantity
from kltune.symptoms.scale import pseudo_explosion


def run(advantage: float, kl: float, steps: int = 20) -> Curve:
    """Spread 1 and KL 0.01 nats per token in the first half, these in the second."""
    return Curve.of_rows(
        (
            step,
            {
                Quantity.ADVANTAGE_STD: advantage if step > steps / 2 else 1.0,
                Quantity.KL_TOKEN: kl if step > steps / 2 else 0.01,
            },
        )
        for step in range(1, steps + 1)
    )


def test_advantages_and_kl_that_rise_together_are_a_matter_of_normalisation() -> None:
    symptom = pseudo_explosion(run(5.0, 0.4))
    assert symptom is not None
    assert symptom.cause == "normalisation"
    assert "from 0.01 to 0.4 nats/token" in symptom.detail


def test_one_of_both_alone_is_not() -> None:
    assert pseudo_explosion(run(1.0, 0.4)) is None
    assert pseudo_explosion(run(5.0, 0.012)) is None
    assert pseudo_explosion(run(0.1, 0.4)) is None


def test_a_tiny_kl_is_not() -> None:
    assert pseudo_explosion(run(5.0, 0.04)) is None


def test_advantages_that_start_at_zero_have_no_scale_to_grow_from() -> None:
    curve = run(5.0, 0.4)
    values = dict(curve.values)
    values[Quantity.ADVANTAGE_STD] = (*[0.0] * 10, *[5.0] * 10)
    assert pseudo_explosion(Curve(curve.steps, values)) is None
    assert pseudo_explosion(run(5.0, 0.4, steps=9)) is None
