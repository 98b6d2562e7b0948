from __future__ import annotations

from kltune.symptoms.curve import Curve, Quantity
from kltune.symptoms.proxy import proxy_spread


def run(quantity: Quantity, start: float, end: float, steps: int = 20) -> Curve:
    return Curve.of_rows(
        (step, {quantity: end if step > steps / 2 else start}) for step in range(1, steps + 1)
    )


def test_groups_that_score_all_the_same_have_no_spread() -> None:
    symptom = proxy_spread(run(Quantity.ZERO_GROUPS, 0.1, 0.95))
    assert symptom is not None
    assert "95% of the groups (steps 16-20)" in symptom.detail
    assert proxy_spread(run(Quantity.ZERO_GROUPS, 0.1, 0.8)) is None


def test_a_spread_that_vanished_is_seen_without_groups() -> None:
    assert proxy_spread(run(Quantity.PROXY_STD, 1.0, 0.01)) is not None
    assert proxy_spread(run(Quantity.PROXY_STD, 1.0, 0.3)) is None
    assert proxy_spread(run(Quantity.PROXY_STD, 0.0, 0.0)) is not None


def test_a_spread_that_comes_up_is_fine() -> None:
    assert proxy_spread(run(Quantity.PROXY_STD, 0.0, 0.3)) is None


def test_a_log_of_neither_says_nothing() -> None:
    assert proxy_spread(run(Quantity.PROXY, 1.0, 1.0)) is None
