"""The KL of step 0."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import soundness_bank as case
import tiny
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from kltune.trainer.bank import Bank
from kltune.trainer.batch import Batch
from kltune.trainer.logprobs import Completions, Hidden, hidden_states
from kltune.trainer.model import freeze, place
from kltune.trainer.parts import BankParts
from kltune.trainer.soundness.drawn import trainer_logprobs
from kltune.trainer.soundness.reference import reference_facts


@pytest.mark.parametrize("own_forward", [True, False])
def test_the_start_is_the_reference_to_the_last_bit(own_forward: bool) -> None:
    bank, drawn, found = case.started(case.bank_of(tiny.loaded(own_forward=own_forward)))
    facts = reference_facts(bank, drawn, found)
    assert (facts.exact_kl_token, facts.exact_kl_seq, facts.largest_gap) == (0.0, 0.0, 0.0)
    assert (facts.k1_token, facts.k3_token) == (0.0, 0.0)
    assert 0 <= facts.floor_kl_token < 1e-10
    assert facts.floor_gap < 1e-4
    assert (facts.num_tokens, facts.precision) == (int(drawn.rollout.mask_KNT.sum()), "fp32")


def test_a_reference_with_another_adapter_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    # field case A13
    model = tiny.loaded(own_forward=True)
    settings = tiny.settings(prompts=8, group_size=4)
    bank = Bank(model, tiny.task_data(model), settings, tiny.MODEL, 2)
    bank.admit(1, 1, tiny.trial(learning_rate=3e-2), None)
    for _ in range(2):
        bank.train_step()
    bank, drawn, _ = case.started(bank)

    def other(parts: BankParts, batch: Batch, completions: Completions) -> Hidden:
        del batch
        return hidden_states(parts.loaded, parts.stack, parts.stack.view((1,)), completions)

    monkeypatch.setattr("kltune.trainer.measure._reference", other)
    facts = reference_facts(bank, drawn, trainer_logprobs(bank, drawn.rollout))
    assert facts.exact_kl_token > 1e-3
    assert facts.exact_kl_seq == pytest.approx(
        facts.exact_kl_token * facts.num_tokens / len(drawn), rel=1e-5
    )
    assert facts.largest_gap > 1e-2
    assert facts.floor_kl_token < 1e-10


@pytest.fixture
def bf16() -> Iterator[Accelerator]:
    """accelerate keeps one precision per process; this test's is its own."""
    AcceleratorState._reset_state(reset_partial_state=True)  # pyright: ignore[reportPrivateUsage]
    yield place("cpu", "bf16")
    AcceleratorState._reset_state(reset_partial_state=True)  # pyright: ignore[reportPrivateUsage]


def test_in_bf16_the_floor_is_told(bf16: Accelerator) -> None:
    # field case A46: exactly 0 through one shape, not through two
    bank, drawn, found = case.started(
        case.bank_of(freeze(tiny.llama(), tiny.tokenizer(), bf16), precision="bf16")
    )
    facts = reference_facts(bank, drawn, found)
    assert (facts.exact_kl_token, facts.largest_gap, facts.precision) == (0.0, 0.0, "bf16")
    assert torch.isfinite(torch.tensor(facts.floor_kl_token))
    assert facts.floor_gap < 0.3
