"""The sampler's log-probs against the trainer's."""

from __future__ import annotations

from dataclasses import replace

import pytest
import soundness_bank as case
import tiny

from kltune.trainer.logprobs import Scoring
from kltune.trainer.parts import BankParts
from kltune.trainer.soundness.drawn import trainer_logprobs
from kltune.trainer.soundness.sampler import sampler_facts


@pytest.mark.parametrize("own_forward", [True, False])
def test_a_sound_sampler_agrees_before_and_after_a_step(own_forward: bool) -> None:
    # field case A47
    model = tiny.loaded(own_forward=own_forward)
    _, drawn, found = case.started(case.bank_of(model))
    _, later, after = case.moved(case.bank_of(tiny.loaded(own_forward=own_forward)))
    facts = sampler_facts((drawn, found), (later, after))
    assert facts.start_gap <= 1e-5
    assert facts.moved_gap is not None
    assert facts.moved_gap <= 1e-5
    assert abs(facts.start_mean) <= facts.start_gap
    assert facts.num_tokens == int(drawn.rollout.mask_KNT.sum())
    assert sampler_facts((drawn, found), None).moved_gap is None


def test_a_sampler_at_another_temperature_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    bank, drawn, _ = case.started()
    monkeypatch.setattr(BankParts, "scoring", property(lambda _self: Scoring(0.7, only_valid=True)))
    facts = sampler_facts((drawn, trainer_logprobs(bank, drawn.rollout)), None)
    assert facts.start_gap > 0.1
    assert facts.start_mean > 0, "over the sampler's own tokens the mean gap is a KL"


def test_a_sampler_without_the_adapters_shows_only_after_a_step() -> None:
    bank, later, after = case.moved()
    bank.evict(0)
    bank, drawn, found = case.started(bank)
    wrong = replace(after, policy_KNT=after.reference_KNT)
    facts = sampler_facts((drawn, found), (later, wrong))
    assert facts.start_gap <= 1e-5
    assert facts.moved_gap is not None
    assert facts.moved_gap > 1e-2
