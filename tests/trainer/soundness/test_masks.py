"""Valid tokens counted by hand."""

from __future__ import annotations

import pytest
import soundness_bank as case
import tiny
import torch

from kltune.trainer import train_step
from kltune.trainer.bank import Bank
from kltune.trainer.rollout import Drawn as RawDraw
from kltune.trainer.rollout import Rollout, draw, rollout
from kltune.trainer.soundness import drawn as drawing
from kltune.trainer.soundness.drawn import draw_step
from kltune.trainer.soundness.facts import MaskFacts
from kltune.trainer.soundness.masks import count_by_hand, mask_facts


def facts_of(own_forward: bool = True, **trainer: object) -> MaskFacts:
    bank, drawn, found = case.started(case.bank_of(tiny.loaded(own_forward=own_forward), **trainer))
    step = draw_step(bank, 0)
    (metrics,) = bank.train_step()
    return mask_facts(bank, drawn, found, (step, metrics.values["tokens/step"]))


def test_tokens_count_up_to_and_with_the_first_stop() -> None:
    assert count_by_hand([5, 6, 1, 1, 0], (1,)) == 3
    assert count_by_hand([5, 6, 7], (1, 2)) == 3
    assert count_by_hand([2, 5, 1], (1, 2)) == 1
    assert count_by_hand([], (1,)) == 0


@pytest.mark.parametrize("own_forward", [True, False])
@pytest.mark.parametrize("compact", [True, False])
def test_a_sound_trainer_counts_as_a_hand_does(own_forward: bool, compact: bool) -> None:
    model = tiny.loaded(own_forward=own_forward)
    settings = tiny.settings(prompts=8, group_size=4, compact=compact)
    bank = Bank(model, tiny.task_data(model), settings, tiny.MODEL, 1)
    bank, drawn, found = case.started(bank)
    facts = mask_facts(bank, drawn, found, None)
    lengths = {sample.by_hand for sample in facts.samples}
    assert len(lengths) > 1, "the case must have completions of different lengths"
    assert any(sample.ended for sample in facts.samples)
    assert all(s.by_hand == s.by_mask == s.scored for s in facts.samples)
    assert all(sample.in_place for sample in facts.samples)
    assert facts.by_hand == facts.by_mask == facts.by_lengths == facts.scored
    assert (facts.weighted, facts.wrong_rows, facts.wrong_ends) == (0, 0, 0)
    assert facts.longest <= facts.limit == 6
    assert facts.prompt_tail_frac < 0.5
    assert (facts.step_by_hand, facts.step_metric) == (None, None)


def test_so_does_a_real_step() -> None:
    facts = facts_of()
    assert facts.step_by_hand == facts.step_metric
    assert facts.step_by_hand


def test_padding_that_counts_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    def padded(*args: object) -> RawDraw:
        ids, mask, logprobs, finished = draw(*args)  # pyright: ignore[reportArgumentType]
        return ids, torch.ones_like(mask), logprobs, finished

    monkeypatch.setattr("kltune.trainer.rollout.draw", padded)
    facts = facts_of()
    assert facts.by_mask > facts.by_hand
    assert facts.wrong_rows > 0
    assert facts.weighted > 0.01
    assert facts.step_metric is not None
    assert facts.step_by_hand is not None
    assert facts.step_metric > facts.step_by_hand
    assert not all(sample.in_place for sample in facts.samples)


def test_a_stop_token_that_does_not_count_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    def short(*args: object) -> RawDraw:
        ids, mask, logprobs, finished = draw(*args)  # pyright: ignore[reportArgumentType]
        return ids, mask & (ids != 1), logprobs, finished

    monkeypatch.setattr("kltune.trainer.rollout.draw", short)
    facts = facts_of()
    assert facts.by_mask < facts.by_hand
    assert facts.wrong_rows > 0


def test_prompt_tokens_that_count_show(monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(*args: object) -> Rollout:
        found = rollout(*args)  # pyright: ignore[reportArgumentType]
        last = found.prompts.ids[None, :, -1:]
        true = torch.ones_like(last).bool()
        return Rollout(
            found.prompts,
            torch.cat([last, found.ids_KNT], dim=-1),
            torch.cat([true, found.mask_KNT], dim=-1),
            torch.cat([torch.zeros(last.shape), found.sampler_logprobs_KNT], dim=-1),
            found.ended_KN,
        )

    for module in (drawing, train_step):
        monkeypatch.setattr(module, "rollout", greedy)
    facts = facts_of()
    assert facts.prompt_tail_frac == 1
    assert facts.longest == facts.limit + 1


def test_a_wrong_end_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(*args: object) -> RawDraw:
        ids, mask, logprobs, finished = draw(*args)  # pyright: ignore[reportArgumentType]
        return ids, mask, logprobs, torch.zeros_like(finished)

    monkeypatch.setattr("kltune.trainer.rollout.draw", endless)
    assert facts_of().wrong_ends > 0
