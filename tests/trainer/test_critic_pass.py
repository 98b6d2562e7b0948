from __future__ import annotations

import math

import pytest
import tiny
import torch
from oracle import push, relative_error

from kltune.trainer.bank import Bank


def started(**trainer: object) -> Bank:
    """A PPO bank of two slots whose critics know something already."""
    bank = tiny.bank(2, algorithm="ppo", **trainer)
    for slot in range(2):
        bank.admit(slot, slot, tiny.trial(beta=0.3, penalty="k1-reward", seed=slot), None)
        push(bank, slot, seed=slot)
        push(bank, bank.parts.rows.critics((slot,))[0], seed=5 + slot)
    assert bank.parts.critic is not None
    drawn = torch.Generator().manual_seed(9)
    bank.parts.critic.head_KH.copy_(0.2 * torch.randn(2, 33, generator=drawn))
    return bank


@pytest.mark.parametrize("size", [1, 2, 4])
def test_the_value_gradients_of_micro_batches_add_up(size: int) -> None:
    whole, cut = started(), started(micro_batch=size)
    for bank in (whole, cut):
        bank.train_step()
    one, other = whole.parts, cut.parts
    assert one.critic is not None
    assert other.critic is not None
    for row in range(one.rows.total):
        assert float(one.stack.grad_KP[row].norm()) > 0
        assert relative_error(other.stack.grad_KP[row], one.stack.grad_KP[row]) < 1e-5
    assert relative_error(other.critic.head_KH, one.critic.head_KH) < 1e-5


def test_a_critic_that_breaks_keeps_policy_and_critic_of_its_slot_and_no_other() -> None:
    bank = started()
    critic = bank.parts.critic
    assert critic is not None
    critic.head_KH[0, 3] = math.inf
    before = bank.parts.stack.flat_KP.clone()
    broken, fine = bank.train_step()
    assert (broken.is_finite, fine.is_finite) == (False, True)
    policy, value = 0, bank.parts.rows.critics((0,))[0]
    for row in (policy, value):
        assert torch.equal(bank.parts.stack.flat_KP[row], before[row])
    for row in (1, bank.parts.rows.critics((1,))[0]):
        assert not torch.equal(bank.parts.stack.flat_KP[row], before[row])
    assert bank.parts.optimizer.num_steps_K == [0, 1, 0, 1]
    assert critic.optimizer.num_steps_K == [0, 1]


def test_the_critic_has_a_rate_of_its_own() -> None:
    def moved(rate: float | None) -> float:
        bank = started(critic={"learning_rate": rate})
        critic = bank.parts.critic
        assert critic is not None
        before = critic.head_KH.clone()
        bank.train_step()
        return float((critic.head_KH - before).norm())

    assert moved(1e-3) == pytest.approx(moved(None) / 10, rel=1e-3)  # the trials' rate is 1e-2
