"""The penalties study, scaled down."""

from __future__ import annotations

import pytest
from studies_case import run_small


@pytest.fixture(scope="module")
def scaled_down(tmp_path_factory):
    return run_small("2026-11-30-penalties", tmp_path_factory.mktemp("penalties"))


@pytest.mark.slow
def test_k1_in_the_reward_holds_kl_and_k1_in_the_loss_does_not(scaled_down):
    none, reward, loss = (
        scaled_down["settings"][name]["kl_end"]["mean"]
        for name in ("no KL", "k1-reward 0.5", "k1-loss 0.5")
    )

    assert reward < none / 2
    assert reward < loss / 2
