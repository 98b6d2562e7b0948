from __future__ import annotations

import numpy as np
import pytest

from kltune.frameworks import verl
from kltune.frameworks.samples import Samples


def samples(*log_ratios: list[float]) -> Samples:
    width = max(map(len, log_ratios))
    values = np.array([row + [0.0] * (width - len(row)) for row in log_ratios])
    mask = np.array([[t < len(row) for t in range(width)] for row in log_ratios])
    return Samples(values, np.zeros_like(values), mask)


A1 = samples([0.2, -0.5, 0.1])
A22 = samples([0.1, 0.2, 0.3], [0.4])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("kl", -0.066667),
        ("k1", -0.066667),
        ("abs", 0.266667),
        ("mse", 0.05),
        ("k2", 0.05),
        ("low_var_kl", 0.057430),
        ("k3", 0.057430),
        ("low_var_kl+", 0.057430),
        ("kl+", -0.066667),
    ],
)
def test_each_type_by_hand(kind: str, value: float) -> None:
    assert verl.in_loss(A1, kind)["actor/kl_loss"].value == pytest.approx(value, abs=1e-6)


def test_each_mode_by_hand() -> None:
    ones = samples([1.0, 1.0, 1.0, 1.0], [5.0])  # field case A33 with k1 as the token's value
    by_mode = {
        "token-mean": 1.8,
        "seq-mean-token-mean": 3.0,
        "seq-mean-token-sum": 4.5,
        "seq-mean-token-sum-norm": 1.125,
    }
    for mode, value in by_mode.items():
        assert verl.in_loss(ones, "kl", mode)["actor/kl_loss"].value == pytest.approx(value), mode
    halved = verl.in_loss(ones, "kl", "seq-mean-token-sum-norm", 8.0)["actor/kl_loss"]
    assert halved.value == pytest.approx(0.5625)
    assert halved.unit == "nats/sequence / 8"


def test_the_reward_metric_averages_sequences_first() -> None:
    assert verl.in_reward(A22)["actor/reward_kl_penalty"].value == pytest.approx(0.3)
    assert verl.in_loss(A22, "kl")["actor/kl_loss"].value == pytest.approx(0.25)


def test_k3_is_clamped_to_ten_nats_and_k1_is_not() -> None:
    far = samples([-3.0], [-25.0])
    expected = (min(np.exp(3.0) - 4, 10) + 10) / 2
    assert verl.in_loss(far)["actor/kl_loss"].value == pytest.approx(expected)
    assert verl.in_loss(far, "kl")["actor/kl_loss"].value == pytest.approx(-14.0)


def test_a_large_positive_log_ratio_is_clamped_twice() -> None:
    # +25 is cut to +20 first: k3 = exp(-20) - 1 + 20 = 19, then 10.
    assert verl.in_loss(samples([25.0]))["actor/kl_loss"].value == pytest.approx(10.0)
    assert verl.in_loss(samples([8.0]))["actor/kl_loss"].value == pytest.approx(7.000335, abs=1e-6)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="low_var_kl"):
        verl.in_loss(A1, "full")
    with pytest.raises(ValueError, match="token-mean"):
        verl.in_loss(A1, "kl", "mean")
