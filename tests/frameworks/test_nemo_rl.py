from __future__ import annotations

import numpy as np
import pytest

from kltune.frameworks import nemo_rl
from kltune.frameworks.samples import Samples


def samples(*log_ratios: list[float]) -> Samples:
    width = max(map(len, log_ratios))
    values = np.array([row + [0.0] * (width - len(row)) for row in log_ratios])
    mask = np.array([[t < len(row) for t in range(width)] for row in log_ratios])
    return Samples(values, np.zeros_like(values), mask)


def test_types_by_hand() -> None:
    row = samples([0.2, -0.5, 0.1])  # field case A1
    for kind, value in (("k1", -0.066667), ("k2", 0.05), ("k3", 0.057430)):
        assert nemo_rl.in_loss(row, kind)["kl_penalty"].value == pytest.approx(value, abs=1e-6)


def test_token_level_loss_decides_the_average() -> None:
    rows = samples([0.1, 0.2, 0.3], [0.4])  # field case A22
    by_token = nemo_rl.in_loss(rows, "k1")["kl_penalty"].value
    by_row = nemo_rl.in_loss(rows, "k1", token_level_loss=False)["kl_penalty"].value
    assert (by_token, by_row) == (pytest.approx(0.25), pytest.approx(0.3))


def test_log_ratio_is_clamped_at_twenty_and_the_estimate_at_ten() -> None:
    assert nemo_rl.in_loss(samples([30.0]), "k1")["kl_penalty"].value == 10.0
    assert nemo_rl.in_loss(samples([30.0]), "k1", output_clamp=None)["kl_penalty"].value == 20.0
    off = nemo_rl.in_loss(samples([30.0]), "k1", None, None)["kl_penalty"]
    assert off.value == 30.0
    assert "no bound" in off.definition
    cut = nemo_rl.in_loss(samples([-30.0]), output_clamp=None)["kl_penalty"].value
    assert cut == pytest.approx(np.exp(20) - 21)


def test_unknown_types_are_refused() -> None:
    with pytest.raises(ValueError, match="k1, k2, k3"):
        nemo_rl.in_loss(samples([0.1]), "abs")
