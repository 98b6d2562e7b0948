"""Merged weights are never those of adapters that have changed since."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from torch import Tensor

from kltune.trainer.bank import Bank
from kltune.trainer.logprobs import Completions, Scoring, hidden_states, score
from kltune.trainer.model import LoadedModel, with_own_forward
from kltune.trainer.optimizer import AdamWSettings
from tests.scored_rows import (
    completions,
    relative,
    scored,
    second_of,
    stack_of,
)


@dataclass
class Watched:
    """A bank whose first two slots have run, so that their weights may be cached."""

    bank: Bank
    rows: Completions

    def states(self, loaded: LoadedModel, slots: tuple[int, ...]) -> Tensor:
        stack: Any = self.bank.parts.stack
        view = stack.view(slots)
        rows = self.rows if len(slots) == 2 else second_of(self.rows)
        with torch.no_grad():
            return hidden_states(loaded, stack, view, rows).states_KNTD

    def check(self, *slots: int) -> None:
        """What the next forward gives is what a forward without a past gives."""
        loaded = self.bank.parts.loaded
        fresh = with_own_forward(loaded)
        assert torch.equal(self.states(loaded, slots), self.states(fresh, slots))


def watched(**trainer: object) -> Watched:
    bank = tiny.bank(3, own_forward=True, **trainer)
    for slot in range(3):
        bank.admit(slot, slot, tiny.trial(seed=slot, learning_rate=0.05), None)
    flat_KP = bank.parts.stack.flat_KP
    flat_KP.add_(0.05 * torch.randn(flat_KP.shape, generator=torch.Generator().manual_seed(2)))
    return Watched(bank, completions())


def optimizer_step(bank: Bank, _folder: Path) -> None:
    stack = bank.parts.stack
    stack.grad_KP.fill_(0.1)
    settings = AdamWSettings(0.1, 0.0, 1.0)
    bank.parts.optimizer.step(1, stack.flat_KP[1], stack.grad_KP[1], settings)


def reset(bank: Bank, _folder: Path) -> None:
    bank.parts.stack.reset(1, seed=77)


def clear(bank: Bank, _folder: Path) -> None:
    bank.parts.stack.clear(1)


def copy(bank: Bank, _folder: Path) -> None:
    bank.parts.stack.copy_row(0, 1)


def mix(bank: Bank, _folder: Path) -> None:
    bank.parts.stack.copy_row(2, 1, 0.5)


def write(bank: Bank, _folder: Path) -> None:
    bank.parts.stack.flat_KP[1] = 0.03


def add(bank: Bank, _folder: Path) -> None:
    bank.parts.stack.flat_KP.add_(0.01)


def train(bank: Bank, _folder: Path) -> None:
    bank.train_step()


def refill(bank: Bank, _folder: Path) -> None:
    bank.evict(1)
    bank.admit(1, 9, tiny.trial(seed=9), None)


def resume(bank: Bank, folder: Path) -> None:
    bank.save_checkpoint(2, folder / "last")
    bank.evict(1)
    bank.admit(1, 9, tiny.trial(seed=2, learning_rate=0.05), folder / "last")


CHANGES = [optimizer_step, reset, clear, copy, mix, write, add, train, refill, resume]
"""Every way in which weights of a slot change."""


@pytest.mark.parametrize("seen", [(1,), (0, 1), (2, 1)], ids=str)
@pytest.mark.parametrize("change", CHANGES)
def test_after_any_change_the_next_forward_runs_with_the_new_weights(
    change: Callable[[Bank, Path], None], seen: tuple[int, ...], tmp_path: Path
) -> None:
    # (2, 1) is no range in order: that view is a copy
    given = watched()
    loaded = given.bank.parts.loaded
    before = given.states(loaded, seen)
    assert torch.equal(given.states(loaded, seen), before)
    change(given.bank, tmp_path)
    assert not torch.equal(given.states(loaded, seen)[-1], before[-1])
    given.check(*seen)


def test_slots_in_turn_run_with_their_own_weights() -> None:
    given = watched()
    loaded = given.bank.parts.loaded
    for slots in ((0,), (1,), (0,), (2,), (0, 1), (1,), (2, 0), (1, 2), (0, 1), (2,)):
        given.check(*slots)
    assert not torch.equal(given.states(loaded, (0,)), given.states(loaded, (1,)))


def test_rows_of_critics_and_references_in_turn_run_with_their_own_weights() -> None:
    given = watched(algorithm="ppo", reference={"every": 1, "mixture": 0.5})
    rows = given.bank.parts.rows
    assert rows.total == 9
    loaded = given.bank.parts.loaded
    for slot in (0, 1, 0):
        for row in rows.of(slot):
            given.check(row)
    states = [given.states(loaded, (row,)) for row in range(9)]
    for i, one in enumerate(states):
        assert not any(torch.equal(one, other) for other in states[:i])


def test_two_banks_in_turn_on_one_model_run_with_their_own_weights() -> None:
    model = tiny.loaded(own_forward=True)
    rows, found = completions(), []
    for scale in (0.05, 0.1):
        stack = stack_of(model, scale=scale)
        with torch.no_grad():
            found.append(hidden_states(model, stack, stack.view((0, 1)), rows).states_KNTD)
            fresh = with_own_forward(model)
            again = hidden_states(fresh, stack, stack.view((0, 1)), rows).states_KNTD
        assert torch.equal(found[-1], again)
    assert not torch.equal(*found)


@pytest.mark.parametrize("saves_memory", [False, True])
@pytest.mark.parametrize("between", ["another slot", "new weights"])
def test_a_gradient_taken_after_the_weights_have_changed_is_never_silently_another(
    between: str, saves_memory: bool
) -> None:
    model = tiny.loaded(own_forward=True)
    assert model.fused is not None
    if saves_memory:
        model.fused.save_memory()
    stack, rows = stack_of(model), second_of(completions())
    view = stack.view((1,))
    _, wanted = scored(model, stack, view, rows)
    view.grad_KP.zero_()
    found = score(model, stack, view, rows, Scoring(0.8, True, frozenset({"exact"})))
    loss = (found.policy_KNT.sin() + found.exact_kl_KNT).sum()
    if between == "new weights":
        stack.reset(1, seed=5)
    with torch.no_grad():
        hidden_states(model, stack, stack.view((0 if between == "another slot" else 1,)), rows)
    try:
        view.add_gradients(loss)
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)  # noqa: PT017 - either is right
    else:
        assert relative(view.grad_KP, wanted) < 1e-6
