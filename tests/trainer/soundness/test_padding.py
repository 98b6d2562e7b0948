"""Log-probs of a completion alone, padded and among neighbours."""

from __future__ import annotations

from collections.abc import Callable

import families
import pytest
import soundness_bank as case
import tiny
import torch
from torch import Tensor

from kltune.trainer.encode import PaddedPrompts
from kltune.trainer.logprobs import Completions, Hidden, hidden_states
from kltune.trainer.model import LoadedModel
from kltune.trainer.soundness.padding import alone_with, padding_facts, together_with


@pytest.mark.parametrize(
    "build",
    [lambda: tiny.loaded(own_forward=True), tiny.loaded, families.opt, families.mistral],
    ids=["own", "llama", "opt", "mistral"],
)
def test_a_sound_trainer_does_not_see_padding_or_neighbours(
    build: Callable[[], LoadedModel],
) -> None:
    bank, drawn, found = case.moved(case.bank_of(build()))
    assert float(found.exact_kl_KNT.max()) > 1e-4, "the case must have left the reference"
    facts = padding_facts(bank, drawn)
    assert facts.worst <= 1e-4
    assert facts.num_tokens == sum(len(drawn.samples[i].token_ids) for i in drawn.few(4))


def test_completions_are_built_from_ids_not_cut_from_the_rollout() -> None:
    bank, drawn, _ = case.started()
    row = drawn.few(4)[1]
    built = alone_with(bank, drawn, row, 7, 3)
    assert built.prompts.mask.sum() == len(drawn.prompt_ids[row])
    assert built.prompts.ids.shape[1] == len(drawn.prompt_ids[row]) + 7
    assert built.ids_KNT.shape[2] == len(drawn.samples[row].token_ids) + 3
    assert built.ids_KNT[built.mask_KNT].tolist() == list(drawn.samples[row].token_ids)
    together = together_with(bank, drawn, [0, row])
    assert together.ids_KNT[0, 1][together.mask_KNT[0, 1]].tolist() == list(
        drawn.samples[row].token_ids
    )


def broken(change_prompts: bool, change_mask: bool):
    """A pass that reads the padding: every position counts as real."""

    def states(loaded: object, stack: object, view: object, rows: Completions) -> Hidden:
        prompts, mask_KNT = rows.prompts, rows.mask_KNT
        if change_prompts:
            prompts = PaddedPrompts(prompts.ids, torch.ones_like(prompts.mask))
        if change_mask:
            mask_KNT = torch.ones_like(mask_KNT)
        wrong = Completions(prompts, rows.ids_KNT, mask_KNT)
        return hidden_states(loaded, stack, view, wrong)  # pyright: ignore[reportArgumentType]

    return states


def test_prompts_whose_padding_is_read_show_on_the_left(monkeypatch: pytest.MonkeyPatch) -> None:
    # field case A12: no attention mask
    bank, drawn, _ = case.moved(case.bank_of(tiny.loaded()))
    monkeypatch.setattr("kltune.trainer.measure.hidden_states", broken(True, False))
    facts = padding_facts(bank, drawn)
    assert min(facts.policy_left, facts.reference_left) > 1e-2
    assert max(facts.policy_right, facts.reference_right) <= 1e-4


def test_a_model_that_reads_from_the_right_shows_there(monkeypatch: pytest.MonkeyPatch) -> None:
    # field case D15, in the scoring pass
    bank, drawn, _ = case.moved(case.bank_of(tiny.loaded()))

    def from_the_end(*args: object) -> Hidden:
        found = hidden_states(*args)  # pyright: ignore[reportArgumentType]
        states: Tensor = found.states_KNTD
        return Hidden(states.flip(2), found.head)

    monkeypatch.setattr("kltune.trainer.measure.hidden_states", from_the_end)
    facts = padding_facts(bank, drawn)
    assert min(facts.policy_right, facts.policy_neighbours, facts.reference_right) > 1e-2
