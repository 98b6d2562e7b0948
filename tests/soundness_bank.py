"""Tiny banks for the probes: a trial in slot 0, what it draws, and how the trainer scores that."""

from __future__ import annotations

from dataclasses import replace

import tiny

from kltune.spec.study import StudySpec
from kltune.trainer.bank import Bank
from kltune.trainer.logprobs import Logprobs
from kltune.trainer.model import LoadedModel
from kltune.trainer.soundness.drawn import Drawn, draw, trainer_logprobs


def study(**fields: object) -> StudySpec:
    return StudySpec.model_validate(
        {
            "name": "probed",
            "task": "kitchen",
            "model": tiny.MODEL.model_dump(exclude_none=True),
            "trainer": {"steps": 10, "learning_rate": 1e-2},
            "search": {"beta": {"log": [0.01, 1.0], "zero": True}, "penalty": {"choice": ["k2-loss", "k1-reward"]}},
            "budget": {"trials": 4},
            **fields,
        }
    )  # fmt: skip


def bank_of(model: LoadedModel, **trainer: object) -> Bank:
    """A bank of one empty slot on any model; a trial of a bank takes 32 completions at most 6 tokens long."""
    settings = tiny.settings(compact=True, **{"prompts": 8, "group_size": 4, **trainer})
    return Bank(model, tiny.task_data(model), settings, tiny.MODEL, 1)


def started(bank: Bank | None = None, count: int = 32) -> tuple[Bank, Drawn, Logprobs]:
    """A trial in slot 0 of ``bank`` (by default with our own forward), and what its start policy draws."""
    bank = bank or bank_of(tiny.loaded(own_forward=True))
    bank.admit(0, 0, tiny.trial(learning_rate=3e-2), None)
    drawn = draw(bank, 0, count)
    return bank, drawn, trainer_logprobs(bank, drawn.rollout)


def moved(bank: Bank | None = None, steps: int = 2) -> tuple[Bank, Drawn, Logprobs]:
    """The same after some steps."""
    bank = bank or bank_of(tiny.loaded(own_forward=True))
    bank.admit(0, 0, tiny.trial(learning_rate=3e-2), None)
    for _ in range(steps):
        bank.train_step()
    drawn = draw(bank, 0, 32)
    return bank, drawn, trainer_logprobs(bank, drawn.rollout)


def with_loaded(bank: Bank, **changes: object) -> None:
    """Change fields of the loaded model under a bank."""
    bank.parts = replace(bank.parts, loaded=replace(bank.parts.loaded, **changes))
