"""What a bank hands to its steps follows from its settings."""

from __future__ import annotations

import numpy as np
import pytest
import tiny
import torch


@pytest.mark.parametrize("compact", [True, False])
def test_sampling_and_scoring_have_one_temperature_and_one_shape_policy(compact: bool) -> None:
    parts = tiny.bank(1, compact=compact, temperature=0.7, max_new_tokens=5).parts
    sampling, scoring = parts.sampling(3), parts.scoring
    assert sampling.temperature == scoring.temperature == 0.7
    assert sampling.compact is scoring.only_valid is compact
    assert (sampling.group_size, sampling.max_new_tokens) == (3, 5)


def test_uniforms_are_stacked_by_slot_without_a_change() -> None:
    draws = [np.full((2, 3), k, dtype=np.float32) for k in (0.25, 0.5)]
    stacked = tiny.bank(1).parts.to_device(draws)
    assert stacked.dtype == torch.float32
    assert stacked[:, 0, 0].tolist() == [0.25, 0.5]
    assert stacked.shape == (2, 2, 3)


def test_sampler_and_trainer_agree_at_a_temperature() -> None:
    bank = tiny.bank(1, temperature=0.7)
    bank.admit(0, 0, tiny.trial(), None)
    for _ in range(2):
        (metrics,) = bank.train_step()
        assert abs(metrics.values["kl/sampler_token"]) < 1e-5
