from __future__ import annotations

import numpy as np
import pytest

from kltune.frameworks import trl
from kltune.frameworks.samples import Samples

A1 = Samples(
    np.array([[-1.0, -2.0, -0.5]]), np.array([[-1.2, -1.5, -0.6]]), np.ones((1, 3), dtype=bool)
)
TWO = Samples(
    np.array([[0.1, 0.2, 0.3], [0.4, 9.0, 9.0]]),
    np.zeros((2, 3)),
    np.array([[True, True, True], [True, False, False]]),
)


def test_grpo_logs_k3_so_it_is_not_negative_where_k1_is() -> None:
    assert trl.grpo(A1)["kl"].value == pytest.approx(0.057430, abs=1e-6)  # field cases A1, A2
    assert trl.rloo(A1)["kl"].value == pytest.approx(-0.066667, abs=1e-6)


def test_rloo_logs_per_token_and_ppo_per_sequence() -> None:
    assert trl.rloo(TWO)["kl"].value == pytest.approx(0.25)  # field case A22
    assert trl.ppo(TWO)["objective/kl"].value == pytest.approx(0.5)
    assert trl.rloo(TWO)["kl"].unit == "nats/token"
    assert trl.ppo(TWO)["objective/kl"].unit == "nats/sequence"


def test_ppo_has_k3_as_well() -> None:
    assert trl.ppo(A1, "k3")["objective/kl"].value == pytest.approx(0.172289, abs=1e-6)
    with pytest.raises(ValueError, match="k1 and k3"):
        trl.ppo(A1, "k2")


def test_no_clamp() -> None:
    far = Samples(np.array([[-30.0]]), np.array([[0.0]]), np.ones((1, 1), dtype=bool))
    assert trl.grpo(far)["kl"].value == pytest.approx(np.exp(30) - 31)
    farther = Samples(np.array([[-900.0]]), np.array([[0.0]]), np.ones((1, 1), dtype=bool))
    assert trl.grpo(farther)["kl"].value == np.inf
