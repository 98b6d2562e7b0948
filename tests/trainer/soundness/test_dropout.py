"""Two passes over the same rows."""

from __future__ import annotations

from dataclasses import replace

import families
import soundness_bank as case
import tiny
import torch
from torch import nn

from kltune.trainer.soundness.dropout import dropout_facts


def test_a_frozen_model_repeats_itself_though_its_config_has_dropout() -> None:
    # field case A10
    bank, drawn, _ = case.started(case.bank_of(families.opt()))
    facts = dropout_facts(bank, drawn, None)
    assert (facts.policy_gap, facts.reference_gap) == (0.0, 0.0)
    assert (facts.num_active, facts.training_modules, facts.scores_repeat) == (0, 0, None)
    assert "dropout=0.1" in facts.in_config
    assert "attention_dropout=0.1" in facts.in_config


def test_a_model_left_in_training_mode_shows() -> None:
    # field cases A10, D16: functional dropout, which no module stands for
    bank, drawn, _ = case.started(case.bank_of(families.opt()))
    bank.parts.loaded.model.train()
    with torch.random.fork_rng():
        facts = dropout_facts(bank, drawn, None)
    assert facts.policy_gap > 1e-2
    assert facts.reference_gap > 1e-2
    assert facts.training_modules > 0


def test_a_dropout_module_that_is_on_is_named() -> None:
    bank, drawn, _ = case.started(case.bank_of(tiny.loaded()))
    layer = bank.parts.loaded.body.get_submodule("layers.1")
    layer.add_module("wet", nn.Dropout(0.3).train())
    layer.add_module("dry", nn.Dropout(0.0).train())
    facts = dropout_facts(bank, drawn, None)
    assert (facts.active, facts.num_active) == (("model.model.layers.1.wet",), 1)
    assert facts.training_modules == 2


def test_dropout_of_a_learned_reward_shows() -> None:
    class Learned:
        name = "learned"
        trunk = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1))
        __call__ = tiny.CountWord("w3").__call__

    bank, drawn, _ = case.started()
    bank.parts = replace(bank.parts, data=replace(bank.parts.data, proxy=Learned()))
    facts = dropout_facts(bank, drawn, False)
    assert facts.active == ("proxy.1",)
    assert facts.scores_repeat is False
