"""What K trials need."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import soundness_bank as case
import tiny
import torch

from kltune.trainer.bank import Bank
from kltune.trainer.soundness.memory import Peak, kept_bytes, measured_peak, memory_facts

CPU = torch.device("cpu")
MB = 2**20


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_the_peak_is_what_was_held_in_between() -> None:
    def fill() -> int:
        return len(torch.ones(64 * MB, dtype=torch.uint8))

    result, peak = measured_peak(CPU, fill)
    assert result == 64 * MB
    if peak.beyond is None:
        pytest.skip("this container does not let the high-water mark be reset")
    assert 60 * MB < peak.beyond < 120 * MB
    assert peak.total is not None
    assert peak.total > peak.beyond
    _, little = measured_peak(CPU, lambda: None)
    assert little.beyond is not None
    assert little.beyond < 20 * MB


def test_adapters_grow_with_the_slots_and_the_base_does_not() -> None:
    bank, drawn, _ = case.started()
    one, four = (memory_facts(bank, drawn, slots, Peak(5, 6)) for slots in (1, 4))
    assert one.base == four.base == sum(4 * p.numel() for p in bank.parts.loaded.model.parameters())
    # Weights, gradients and two moments, in float32.
    assert one.adapters == 16 * bank.parts.stack.num_parameters
    assert four.adapters == 4 * one.adapters
    assert (one.step_peak, one.process_peak, one.slots) == (5, 6, 1)
    assert four.estimate == four.base + four.adapters + four.activations
    assert one.free is None or one.free > 0


def test_a_critic_and_a_moving_reference_have_rows_of_their_own() -> None:
    model = tiny.loaded(own_forward=True)
    given = {"algorithm": "ppo", "reference": {"every": 2}}
    bank, drawn, _ = case.started(case.bank_of(model, **given))
    found = memory_facts(bank, drawn, 1, Peak(None, None))
    assert found.adapters == (2 * 3 + 2 * 2) * 4 * bank.parts.stack.num_parameters


@pytest.mark.parametrize("own_forward", [True, False])
def test_what_a_pass_keeps_is_measured(own_forward: bool) -> None:
    bank, drawn, _ = case.started(case.bank_of(tiny.loaded(own_forward=own_forward)))
    kept = kept_bytes(bank, drawn)
    # Two layers of width 32: some dozens of float32 vectors per token, and the head's.
    assert 10 * 32 * 4 < kept < 400 * 32 * 4
    assert kept_bytes(bank, drawn) == kept


def test_weights_are_nothing_that_a_pass_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    bank, drawn, _ = case.started(case.bank_of(tiny.loaded()))
    monkeypatch.setattr("kltune.trainer.soundness.memory.NUM_ROWS", 1)
    one = kept_bytes(bank, drawn)
    monkeypatch.setattr("kltune.trainer.soundness.memory.NUM_ROWS", 32)
    assert one < 1.6 * kept_bytes(bank, drawn)


def test_a_smaller_micro_batch_needs_less() -> None:
    bank, drawn, _ = case.started()
    whole = memory_facts(bank, drawn, 1, Peak(None, None))
    bank.parts.micro_batch.size = 4
    few = memory_facts(bank, drawn, 1, Peak(None, None))
    assert few.activations < whole.activations / 2


def test_slots_that_learn_together_need_more_than_one_after_another() -> None:
    together, drawn, _ = case.started(case.bank_of(tiny.loaded()))
    one, four = (memory_facts(together, drawn, n, Peak(None, None)) for n in (1, 4))
    assert four.activations == pytest.approx(4 * one.activations, rel=1e-6)
    apart, drawn, _ = case.started()
    one, four = (memory_facts(apart, drawn, n, Peak(None, None)) for n in (1, 4))
    assert four.activations < 2 * one.activations


def test_longer_completions_than_drawn_are_reckoned_with() -> None:
    model = tiny.loaded(own_forward=True)
    settings = tiny.settings(prompts=8, group_size=4, max_new_tokens=24)
    bank: Bank = Bank(model, tiny.task_data(model), settings, tiny.MODEL, 1)
    bank, drawn, _ = case.started(bank)
    found = memory_facts(bank, drawn, 1, Peak(None, None))
    assert found.activations > found.step_estimate
    assert replace(found, slots=1) == found
