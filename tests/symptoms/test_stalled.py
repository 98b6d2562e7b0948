from __future__ import annotations

import pytest

from kltune.symptoms.curve import Curve, Quantity
from kltune.symptoms.stalled import (
    BETA_TOO_LARGE,
    NO_SPREAD,
    RATE_TOO_SMALL,
    ZERO_ADVANTAGES,
    stalled,
)


def run(steps: int = 40, slope: float = 0.0, kl: float = 0.01, **fixed: float) -> Curve:
    """A flat, noisy proxy (plus ``slope`` a step) at a constant KL per sequence."""
    values = {
        Quantity.KL_SEQ: kl,
        Quantity.PROXY_STD: 1.0,
        Quantity.ADVANTAGE_STD: 0.94,
        Quantity.ZERO_GROUPS: 0.0,
        Quantity.BETA: 0.1,
    } | {Quantity(name): value for name, value in fixed.items()}
    return Curve.of_rows(
        (step, values | {Quantity.PROXY: slope * step + 0.3 * (-1) ** step})
        for step in range(1, steps + 1)
    )


def cause(curve: Curve, *, beta_in_reward: bool = True) -> str | None:
    symptom = stalled(curve, beta_in_reward=beta_in_reward)
    return None if symptom is None else symptom.cause


def test_no_kl_and_a_flat_proxy_are_stalled_and_say_so() -> None:
    symptom = stalled(run(beta=1000.0))
    assert symptom is not None
    assert (symptom.first_step, symptom.last_step) == (31, 40)
    assert symptom.detail.startswith(
        "kl 0.01 nats/sequence (near 0 is below 0.1) and proxy 0 at the start, 0 over steps 31-40"
    )


def test_a_proxy_that_rises_or_a_kl_that_is_there_is_not_stalled() -> None:
    assert stalled(run(slope=0.02)) is None
    assert stalled(run(kl=0.2)) is None


def test_a_falling_proxy_at_no_kl_is_stalled() -> None:
    assert stalled(run(slope=-0.02)) is not None


def test_too_few_steps_say_nothing() -> None:
    assert stalled(run(19)) is None
    assert stalled(run(20)) is not None


def test_causes_are_told_apart() -> None:
    assert cause(run(beta=1000.0)) == BETA_TOO_LARGE
    assert cause(run(zero_groups=1.0, beta=1000.0)) == NO_SPREAD
    assert cause(run(proxy_std=0.0)) == NO_SPREAD
    assert cause(run(advantage_std=0.0, beta=1000.0)) == ZERO_ADVANTAGES
    assert cause(run(beta=0.1)) == RATE_TOO_SMALL
    assert cause(run(beta=0.0)) == RATE_TOO_SMALL


def test_beta_in_reward_is_judged_against_the_spread_of_the_proxy() -> None:
    small_rewards = run(beta=0.01, proxy_std=1e-4)  # field case E3: the penalty dwarfs the reward
    assert cause(small_rewards) == BETA_TOO_LARGE
    assert cause(small_rewards, beta_in_reward=False) == RATE_TOO_SMALL
    assert cause(run(beta=5.0, proxy_std=100.0)) == RATE_TOO_SMALL
    assert cause(run(beta=5.0, proxy_std=100.0), beta_in_reward=False) == BETA_TOO_LARGE


def test_a_beta_that_its_controller_takes_down_is_no_stall() -> None:
    curve = run(beta=1000.0)
    falling = tuple(1000.0 * 0.98**step for step in curve.steps)
    assert stalled(Curve(curve.steps, {**curve.values, Quantity.BETA: falling})) is None
    hardly = tuple(1000.0 * 0.999**step for step in curve.steps)
    assert stalled(Curve(curve.steps, {**curve.values, Quantity.BETA: hardly})) is not None
    idle = tuple(0.01 * 0.98**step for step in curve.steps)
    assert stalled(Curve(curve.steps, {**curve.values, Quantity.BETA: idle})) is not None


def test_a_log_in_nats_per_token_is_read_by_its_length() -> None:
    per_token = run(kl_token=0.002, length=10.0)
    values = {k: v for k, v in per_token.values.items() if k is not Quantity.KL_SEQ}
    symptom = stalled(Curve(per_token.steps, values))
    assert symptom is not None
    assert symptom.numbers["kl_seq"] == pytest.approx(0.02)
    values.pop(Quantity.LENGTH)
    assert stalled(Curve(per_token.steps, values)) is None


def test_the_loss_is_never_looked_at() -> None:  # field cases A34 and E4: 0, 0, .001, .004
    assert stalled(run(slope=0.02, loss=0.0)) is None
