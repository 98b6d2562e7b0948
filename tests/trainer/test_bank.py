"""Slots that are taken, freed and refilled; the frozen base; what is never shared."""

from __future__ import annotations

import hashlib

import pytest
import tiny
import torch

from kltune.trainer.bank import Bank
from kltune.trainer.lora import StackedLoRALinear
from kltune.trainer.protocol import TrialBank


def base_hash(bank: Bank) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(bank.parts.loaded.model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def test_the_bank_is_a_trial_bank() -> None:
    bank: TrialBank = tiny.bank(2)
    assert bank.num_slots == 2


def test_free_slots_are_those_without_a_trial_lowest_first() -> None:
    bank = tiny.bank(4)
    assert bank.free_slots() == (0, 1, 2, 3)
    assert bank.admit(2, 0, tiny.trial(), None) == 0
    bank.admit(0, 1, tiny.trial(), None)
    assert bank.free_slots() == (1, 3)
    bank.evict(2)
    assert bank.free_slots() == (1, 2, 3)


def test_a_taken_slot_takes_no_second_trial() -> None:
    bank = tiny.bank(1)
    bank.admit(0, 0, tiny.trial(), None)
    with pytest.raises(AssertionError, match="slot 0 is taken"):
        bank.admit(0, 1, tiny.trial(), None)


def test_an_empty_bank_does_nothing() -> None:
    assert tiny.bank(2).train_step() == ()


def test_only_occupied_slots_step_and_each_counts_its_own() -> None:
    bank = tiny.bank(3)
    bank.admit(1, 5, tiny.trial(), None)
    bank.train_step()
    bank.admit(0, 6, tiny.trial(seed=1), None)
    assert [(m.slot, m.trial_number, m.step) for m in bank.train_step()] == [(0, 6, 1), (1, 5, 2)]


def test_evicting_leaves_nothing_of_the_trial() -> None:
    bank = tiny.bank(2)
    for slot in range(2):
        bank.admit(slot, slot, tiny.trial(seed=slot), None)
    for _ in range(2):
        bank.train_step()
    parts = bank.parts
    for tensor in (parts.stack.grad_KP, parts.optimizer.exp_avg_KP, parts.optimizer.exp_avg_sq_KP):
        tensor.fill_(1.0)
    bank.evict(0)
    rows = (
        parts.stack.flat_KP,
        parts.stack.grad_KP,
        parts.optimizer.exp_avg_KP,
        parts.optimizer.exp_avg_sq_KP,
    )
    assert not any(tensor[0].any() for tensor in rows)
    assert all(tensor[1].any() for tensor in rows)
    assert parts.optimizer.num_steps_K == [0, 2]


def test_the_reference_never_moves_while_adapters_do_and_kl_grows_from_zero() -> None:
    # field case A14
    bank = tiny.bank(2)
    for slot in range(2):
        bank.admit(slot, slot, tiny.trial(seed=slot, beta=0.01), None)
    before, adapters = base_hash(bank), bank.parts.stack.flat_KP.clone()
    kls = [[m.kl_token for m in bank.train_step()] for _ in range(6)]
    assert base_hash(bank) == before
    assert all(not torch.equal(bank.parts.stack.flat_KP[k], adapters[k]) for k in range(2))
    assert kls[0] == [0.0, 0.0]
    assert min(kls[-1]) > 0


def test_no_weight_of_the_base_is_trainable_or_shares_memory_with_an_adapter() -> None:
    bank = tiny.bank(2)
    flat = bank.parts.stack.flat_KP
    span = range(flat.data_ptr(), flat.data_ptr() + flat.numel() * flat.element_size())
    for parameter in bank.parts.loaded.model.parameters():
        assert not parameter.requires_grad
        assert parameter.data_ptr() not in span


def test_the_same_seed_trains_the_same_and_another_differs() -> None:
    def run(seed: int) -> torch.Tensor:
        bank = tiny.bank(1)
        bank.admit(0, 0, tiny.trial(seed=seed), None)
        for _ in range(3):
            bank.train_step()
        return bank.parts.stack.flat_KP[0].clone()

    assert torch.equal(run(1), run(1))
    assert not torch.equal(run(1), run(2))


def test_global_seeds_change_nothing() -> None:
    def run(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        bank = tiny.bank(1)
        bank.admit(0, 0, tiny.trial(), None)
        bank.train_step()
        return bank.parts.stack.flat_KP[0].clone()

    assert torch.equal(run(1), run(2))


def test_a_second_bank_on_one_model_replaces_the_first_ones_adapters() -> None:
    model = tiny.loaded()
    Bank(model, tiny.task_data(model), tiny.settings(), tiny.MODEL, 2)
    second = Bank(model, tiny.task_data(model), tiny.settings(), tiny.MODEL, 3)
    second.admit(0, 0, tiny.trial(), None)
    (metrics,) = second.train_step()
    assert metrics.kl_token == 0.0
    layers = [m for m in model.body.modules() if isinstance(m, StackedLoRALinear)]
    assert len(layers) == 14


def test_a_learnable_reward_is_learned() -> None:
    bank = tiny.bank(1, steps=30)
    bank.admit(0, 0, tiny.trial(beta=0.001, learning_rate=2e-2, seed=1), None)
    proxies = [bank.train_step()[0].proxy for _ in range(20)]
    assert sum(proxies[-5:]) / 5 > sum(proxies[:5]) / 5 + 0.5
