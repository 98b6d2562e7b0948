"""Slots that are taken, freed and refilled; the frozen base; what is never shared."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
import tiny
import torch

from kltune.errors import OutOfMemoryFault
from kltune.metrics.record import StepMetrics
from kltune.trainer import train_step
from kltune.trainer.bank import Bank
from kltune.trainer.fused import model as own_forward
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


@pytest.mark.parametrize("own", [True, False])
def test_the_sampler_and_the_trainer_give_a_token_the_same_probability(own: bool) -> None:
    bank = tiny.bank(2, own_forward=own, max_new_tokens=16)
    for slot in range(2):
        bank.admit(slot, slot, tiny.trial(seed=slot, learning_rate=2e-2), None)
    for _ in range(4):
        for metrics in bank.train_step():
            assert abs(metrics.values["kl/sampler_token"]) < 1e-5
    assert all(m.kl_token > 1e-3 for m in bank.train_step()), "the policies must have moved"


def test_by_our_own_forward_a_bank_steps_as_by_transformers() -> None:
    found = []
    for own in (True, False):
        bank = tiny.bank(3, own_forward=own)
        assert bank.parts.slot_by_slot == own
        for slot in range(3):
            bank.admit(slot, slot, tiny.trial(seed=slot, learning_rate=1e-3), None)
        first = bank.train_step()
        found.append((first, bank.train_step(), bank.evaluate([0, 1, 2])))
    for got, wanted in zip(*found, strict=True):
        for one, other in zip(got, wanted, strict=True):
            for name, value in other.values.items():
                if not name.startswith("time/"):
                    assert one.values[name] == pytest.approx(value, rel=1e-3, abs=1e-5), name


# memory, by our own forward: slot by slot

NO_MEMORY = "CUDA out of memory. Tried to allocate 2.00 GiB"


def out_of_memory(
    monkeypatch: pytest.MonkeyPatch, does_not_fit: Callable[[tuple[int, ...], int], bool]
) -> list[tuple[tuple[int, ...], int]]:
    """Let passes of an update fail by slots and rows; gives the passes with a gradient that were tried."""
    learn, forward = train_step.learn, own_forward.forward
    learning: list[tuple[int, ...]] = [()]
    tried: list[tuple[tuple[int, ...], int]] = []

    def watched(parts: Any, batch: Any) -> Any:
        learning[0] = batch.slots
        try:
            return learn(parts, batch)
        finally:
            learning[0] = ()

    def limited(blocks: Any, linears: Any, packed: Any, *rest: Any, **named: Any) -> Any:
        rows = len(packed.completions.lengths)
        if torch.is_grad_enabled():
            tried.append((learning[0], rows))
        if learning[0] and does_not_fit(learning[0], rows):
            raise RuntimeError(NO_MEMORY)
        return forward(blocks, linears, packed, *rest, **named)

    monkeypatch.setattr(train_step, "learn", watched)
    monkeypatch.setattr(own_forward, "forward", limited)
    return tried


def three(micro_batch: int | None = None, **trainer: object) -> Bank:
    bank = tiny.bank(3, own_forward=True, micro_batch=micro_batch, **trainer)
    for slot in range(3):
        bank.admit(slot, slot, tiny.trial(seed=slot, penalty="k3-loss"), None)
    drawn = torch.randn(bank.parts.stack.flat_KP.shape, generator=torch.Generator().manual_seed(0))
    bank.parts.stack.flat_KP.add_(0.05 * drawn)
    return bank


def numbers(metrics: StepMetrics) -> dict[str, str]:
    return {n: float(v).hex() for n, v in metrics.values.items() if not n.startswith("time/")}


def weights(bank: Bank, slot: int) -> list[list[float]]:
    parts = bank.parts
    moments = parts.optimizer.exp_avg_KP, parts.optimizer.exp_avg_sq_KP
    return [tensor[slot].tolist() for tensor in (parts.stack.flat_KP, *moments)]


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_slot_that_does_not_fit_is_the_fault_and_the_others_steps_stand(
    failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # one row at a time from the start: else the search for a size would change the last bits
    whole, short = three(micro_batch=1), three(micro_batch=1)
    expected = [whole.train_step() for _ in range(2)]
    before = weights(short, failing)
    others = [slot for slot in range(3) if slot != failing]
    with monkeypatch.context() as patched:
        out_of_memory(patched, lambda slots, _rows: failing in slots)
        stood = short.train_step()
    with pytest.raises(OutOfMemoryFault) as caught:
        short.train_step()
    assert caught.value.slots == (failing,)
    assert caught.value.is_retried
    assert weights(short, failing) == before
    assert short.parts.optimizer.num_steps_K == [int(slot != failing) for slot in range(3)]
    short.evict(failing)
    assert [(m.slot, m.step) for m in stood] == [(slot, 1) for slot in others]
    assert [numbers(m) for m in stood] == [numbers(expected[0][slot]) for slot in others]
    again = short.train_step()
    assert [(m.slot, m.step) for m in again] == [(slot, 2) for slot in others]
    assert [numbers(m) for m in again] == [numbers(expected[1][slot]) for slot in others]
    for slot in others:
        assert weights(short, slot) == weights(whole, slot)


def test_a_slot_that_does_not_fit_leaves_smaller_micro_batches_to_those_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole, short = three(), three()
    expected = whole.train_step()
    with monkeypatch.context() as patched:
        out_of_memory(patched, lambda slots, _rows: slots == (1,))
        kept = {m.slot: m for m in short.train_step()}
    assert numbers(kept[0]) == numbers(expected[0])
    assert kept[2].values["train/loss"] == pytest.approx(expected[2].values["train/loss"], abs=1e-6)
    assert kept[2].values["train/grad_norm"] == pytest.approx(
        expected[2].values["train/grad_norm"], rel=1e-5
    )
    assert short.parts.micro_batch.size == 1


def test_a_fault_is_forgotten_with_its_trial_and_else_raised_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for evicts in (True, False):
        bank = three()
        with monkeypatch.context() as patched:
            out_of_memory(patched, lambda slots, _rows: slots == (1,))
            assert [(m.slot, m.step) for m in bank.train_step()] == [(0, 1), (2, 1)]
        if evicts:
            bank.evict(1)
            bank.admit(1, 9, tiny.trial(seed=9), None)
        else:
            with pytest.raises(OutOfMemoryFault):
                bank.train_step()
        assert [(m.slot, m.step) for m in bank.train_step()] == [(0, 2), (1, 1), (2, 2)]


def test_every_slot_that_does_not_fit_is_named_and_none_has_stepped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bank = three()
    before = bank.parts.stack.flat_KP.clone()
    with monkeypatch.context() as patched:
        out_of_memory(patched, lambda _slots, _rows: True)
        with pytest.raises(OutOfMemoryFault) as caught:
            bank.train_step()
    assert caught.value.slots == (0, 1, 2)
    assert torch.equal(bank.parts.stack.flat_KP, before)
    assert [m.step for m in bank.train_step()] == [1, 1, 1]


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_an_update_that_does_not_fit_is_made_again_in_halves(
    algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, short = three(algorithm=algorithm), three(algorithm=algorithm)
    expected = whole.train_step()
    tried = out_of_memory(monkeypatch, lambda _slots, rows: rows > 2)
    got = short.train_step()
    assert [rows for slots, rows in tried if slots == (1,)][:4] == [2, 2, 2, 2]
    assert short.parts.micro_batch.size == 2
    torch.testing.assert_close(
        short.parts.stack.grad_KP, whole.parts.stack.grad_KP, rtol=1e-5, atol=1e-6
    )
    for one, other in zip(expected, got, strict=True):
        assert other.values["train/loss"] == pytest.approx(one.values["train/loss"], abs=1e-6)
        assert other.kl_token == pytest.approx(one.kl_token, rel=1e-5)


def test_another_error_in_one_slot_is_no_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    bank = three()

    def broken(*_args: object, **_named: object) -> None:
        raise RuntimeError("shape mismatch")

    monkeypatch.setattr(own_forward, "forward", broken)
    with pytest.raises(RuntimeError, match="shape mismatch"):
        bank.train_step()
