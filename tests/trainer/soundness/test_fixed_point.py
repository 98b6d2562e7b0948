"""One step at learning rate 0 and one at the real rate."""

from __future__ import annotations

from dataclasses import replace

import pytest
import soundness_bank as case
import tiny
import torch

from kltune.trainer.bank import Bank
from kltune.trainer.optimizer import AdamWSettings, StackedAdamW
from kltune.trainer.soundness.facts import FixedPointFacts
from kltune.trainer.soundness.fixed_point import base_hash, step_twice
from kltune.trainer.stack import TrainableStack


def stepped(bank: Bank | None = None) -> tuple[FixedPointFacts, Bank]:
    bank, drawn, found = case.started(bank)
    return step_twice(bank, tiny.trial(learning_rate=1e-2), drawn, found).facts, bank


@pytest.mark.parametrize("own_forward", [True, False])
@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_a_sound_trainer_stays_at_rate_0_and_moves_at_the_real_one(
    own_forward: bool, algorithm: str
) -> None:
    model = tiny.loaded(own_forward=own_forward)
    facts, bank = stepped(case.bank_of(model, algorithm=algorithm, weight_decay=0.1))
    assert facts.weights_kept_at_zero
    assert facts.changed_at_zero == 0
    assert facts.weights_moved
    assert facts.reference_kept
    assert facts.reference_logprobs_kept
    assert not facts.shares_storage
    # B alone has a gradient while it is 0, and weight decay reaches A too (but not the critic's, at value 0).
    assert facts.changed_frac > (0.7 if algorithm == "ppo" else 0.95)
    assert facts.largest_change == pytest.approx(1e-2, rel=0.2)
    assert facts.kl_after_token > 0
    assert facts.grad_norm > 0
    assert facts.learning_rate == 1e-2
    assert bank.free_slots() == (), "the moved policy stays for other probes"


def test_full_weights_are_no_part_of_the_base() -> None:
    model = tiny.loaded()
    full = tiny.MODEL.model_copy(update={"finetune": "full"})
    bank = Bank(model, tiny.task_data(model), tiny.settings(prompts=8, group_size=4), full, 1)
    facts, _ = stepped(bank)
    assert (facts.changed_at_zero, facts.shares_storage) == (0, False)
    assert facts.reference_kept
    assert facts.weights_moved


def test_the_step_is_a_trials_first() -> None:
    bank, drawn, found = case.started()
    setting = tiny.trial(learning_rate=1e-2, seed=4)
    metrics = step_twice(bank, setting, drawn, found).metrics
    undisturbed = case.bank_of(tiny.loaded(own_forward=True))
    undisturbed.admit(0, 0, setting, None)
    (first,) = undisturbed.train_step()
    assert metrics.step == 1
    assert metrics.values["train/loss"] == first.values["train/loss"]
    assert torch.equal(bank.parts.stack.flat_KP, undisturbed.parts.stack.flat_KP)


def test_an_optimiser_that_moves_at_rate_0_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    real = StackedAdamW.step

    def restless(self: StackedAdamW, slot: int, weights: torch.Tensor, *rest: object) -> float:
        grad, settings = rest[0], rest[1]
        assert isinstance(grad, torch.Tensor)
        assert isinstance(settings, AdamWSettings)
        rate = settings.learning_rate + 1e-4
        return real(self, slot, weights, grad, replace(settings, learning_rate=rate))

    monkeypatch.setattr(StackedAdamW, "step", restless)
    facts, _ = stepped()
    assert not facts.weights_kept_at_zero
    assert facts.changed_at_zero > 100


def test_a_change_of_the_last_bit_is_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Bank.train_step

    def nudged(self: Bank) -> object:
        result = real(self)
        with torch.no_grad():
            row = self.parts.stack.flat_KP[0]
            row[0] = torch.nextafter(row[0], torch.tensor(9.0))
        return result

    monkeypatch.setattr(Bank, "train_step", nudged)
    facts, _ = stepped()
    assert facts.changed_at_zero == 1


def test_a_policy_that_never_moves_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StackedAdamW, "step", lambda *_: 1.0)
    facts, _ = stepped()
    assert not facts.weights_moved
    assert (facts.changed_frac, facts.largest_change, facts.kl_after_token) == (0, 0, 0)


def test_a_reference_that_moves_with_the_policy_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    # field case A14
    real = Bank.train_step

    def leaky(self: Bank) -> object:
        result = real(self)
        with torch.no_grad():
            self.parts.loaded.head.weight.mul_(1.01)
        return result

    monkeypatch.setattr(Bank, "train_step", leaky)
    facts, _ = stepped()
    assert not facts.reference_kept
    assert facts.reference_logprobs_kept is False


def test_trained_weights_in_the_bases_memory_show() -> None:
    # field case A14: aliasing
    bank = case.bank_of(tiny.loaded())
    stack: TrainableStack = bank.parts.stack
    weight = bank.parts.loaded.body.get_submodule("layers.0.self_attn.q_proj.base").weight
    assert isinstance(weight, torch.nn.Parameter)
    weight.data = stack.flat_KP[0, : weight.numel()].view(weight.shape)
    facts, _ = stepped(bank)
    assert facts.shares_storage
    assert not facts.reference_kept


def test_a_reference_that_may_follow_is_not_blamed() -> None:
    model = tiny.loaded(own_forward=True)
    facts, _ = stepped(case.bank_of(model, reference={"every": 1}))
    assert facts.reference_logprobs_kept is None
    assert facts.reference_kept


def test_the_hash_is_of_every_number_of_the_base() -> None:
    bank = case.bank_of(tiny.loaded())
    before = base_hash(bank)
    assert base_hash(bank) == before
    with torch.no_grad():
        bank.parts.loaded.head.weight[3, 5] += 1e-3
    assert base_hash(bank) != before
