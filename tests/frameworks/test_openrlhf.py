from __future__ import annotations

import numpy as np
import pytest

from kltune.frameworks import openrlhf
from kltune.frameworks.samples import Samples


def samples(*log_ratios: list[float]) -> Samples:
    width = max(map(len, log_ratios))
    values = np.array([row + [0.0] * (width - len(row)) for row in log_ratios])
    mask = np.array([[t < len(row) for t in range(width)] for row in log_ratios])
    return Samples(values, np.zeros_like(values), mask)


def test_the_reward_averages_sequences_first_the_loss_tokens() -> None:
    rows = samples([0.1, 0.2, 0.3], [0.4])  # field case A22
    assert openrlhf.in_reward(rows)["kl"].value == pytest.approx(0.3)
    assert openrlhf.in_loss(rows, "k1")["kl"].value == pytest.approx(0.25)


def test_estimators_by_hand() -> None:
    row = samples([0.2, -0.5, 0.1])  # field case A1
    assert openrlhf.in_reward(row, "k1")["kl"].value == pytest.approx(-0.066667, abs=1e-6)
    assert openrlhf.in_loss(row, "k2")["kl"].value == pytest.approx(0.05)
    assert openrlhf.in_loss(row, "k3")["kl"].value == pytest.approx(0.057430, abs=1e-6)


def test_every_estimate_is_cut_at_ten_nats() -> None:
    far = samples([-30.0, 4.0])
    assert openrlhf.in_reward(far, "k1")["kl"].value == pytest.approx((-10 + 4) / 2)
    assert openrlhf.in_loss(far, "k2")["kl"].value == pytest.approx((10 + 8) / 2)
    expected = (10 + np.exp(-4) + 3) / 2
    assert openrlhf.in_loss(far, "k3")["kl"].value == pytest.approx(expected)
    assert "±10" in openrlhf.in_loss(far)["kl"].definition


def test_an_overflow_is_cut_too() -> None:
    assert openrlhf.in_loss(samples([-900.0]), "k3")["kl"].value == 10.0


def test_unknown_estimators_are_refused() -> None:
    with pytest.raises(ValueError, match="k1, k2, k3"):
        openrlhf.in_loss(samples([0.1]), "abs")
