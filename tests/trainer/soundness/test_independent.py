"""The oracle: sound, shifted, at another temperature, or wrong in a way of its own."""

from __future__ import annotations

from dataclasses import replace

import families
import pytest
import soundness_bank as case
import tiny
import torch
from torch import Tensor

from kltune.trainer.bank import Bank
from kltune.trainer.logprobs import Hidden, Logprobs, Scoring, hidden_states
from kltune.trainer.parts import BankParts
from kltune.trainer.soundness.drawn import Drawn, trainer_logprobs
from kltune.trainer.soundness.facts import OracleFacts
from kltune.trainer.soundness.independent import oracle_facts


def asked(bank: Bank, drawn: Drawn) -> OracleFacts:
    return oracle_facts(bank, drawn, trainer_logprobs(bank, drawn.rollout))


@pytest.mark.parametrize("own_forward", [True, False])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_a_sound_trainer_agrees_with_the_plain_forward(
    own_forward: bool, temperature: float
) -> None:
    model = tiny.loaded(own_forward=own_forward)
    bank, drawn, found = case.moved(case.bank_of(model, temperature=temperature))
    assert float(found.exact_kl_KNT.max()) > 1e-3, "the case must have left the reference"
    facts = oracle_facts(bank, drawn, found)
    assert max(facts.policy_gap, facts.reference_gap) < 1e-4
    assert (facts.cause, facts.fitted_temperature, facts.best_shift) == ("none", None, None)
    assert (facts.num_completions, facts.temperature) == (8, temperature)
    assert facts.num_tokens == sum(len(drawn.samples[i].token_ids) for i in drawn.few(8))


@pytest.mark.parametrize("by", [1, -1])
def test_states_shifted_by_one_position_are_called_a_shift(
    monkeypatch: pytest.MonkeyPatch, by: int
) -> None:
    # field case: policy and reference are both wrong, so every KL still looks right
    bank, drawn, _ = case.moved()

    def shifted(*args: object) -> Hidden:
        found = hidden_states(*args)  # pyright: ignore[reportArgumentType]
        return Hidden(found.states_KNTD.roll(by, dims=2), found.head)

    monkeypatch.setattr("kltune.trainer.measure.hidden_states", shifted)
    facts = asked(bank, drawn)
    assert facts.policy_gap > 0.1
    assert facts.reference_gap > 0.1
    assert (facts.cause, facts.best_shift) == ("shift", -by)
    assert facts.shift_gap is not None
    assert facts.shift_gap < 1e-4


def test_results_that_stand_one_place_too_late_are_called_a_shift() -> None:
    bank, drawn, found = case.moved()

    def late(column: Tensor) -> Tensor:
        return column.roll(1, dims=-1)

    facts = oracle_facts(bank, drawn, found.each(late))
    assert (facts.cause, facts.best_shift) == ("shift", -1)


@pytest.mark.parametrize("used", [0.5, 1.4])
def test_another_temperature_is_named(monkeypatch: pytest.MonkeyPatch, used: float) -> None:
    bank, drawn, _ = case.moved()
    monkeypatch.setattr(
        BankParts, "scoring", property(lambda _self: Scoring(used, only_valid=True))
    )
    facts = asked(bank, drawn)
    assert (facts.cause, facts.temperature) == ("temperature", 1.0)
    assert facts.fitted_temperature == pytest.approx(used, rel=1e-2)
    assert facts.fitted_gap is not None
    assert facts.fitted_gap < 0.05 * facts.mean_gap


def test_anything_else_is_unknown() -> None:
    bank, drawn, found = case.moved()
    noise = torch.rand(found.policy_KNT.shape, generator=torch.Generator().manual_seed(0))
    wrong: Logprobs = replace(found, policy_KNT=found.policy_KNT - 3 * noise)
    facts = oracle_facts(bank, drawn, wrong)
    assert facts.cause == "unknown"
    assert facts.policy_gap > 1
    assert facts.reference_gap < 1e-4


def test_a_log_prob_that_is_no_number_is_unknown() -> None:
    bank, drawn, found = case.moved()
    broken = replace(found, policy_KNT=found.policy_KNT * torch.nan)
    assert oracle_facts(bank, drawn, broken).cause == "unknown"


def test_other_families_agree_too() -> None:
    bank, drawn, found = case.moved(case.bank_of(families.opt()))
    assert oracle_facts(bank, drawn, found).cause == "none"
