"""What the probes share: the draws of a trial, and the trainer's own numbers at them."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import soundness_bank as case
import tiny
import torch

from kltune.spec.penalty import Penalty
from kltune.trainer.soundness.drawn import (
    draw,
    draw_after,
    draw_step,
    rows_of,
    spread_evenly_to_the_end,
    start_setting,
    trainer_logprobs,
)


def test_at_least_32_completions_in_whole_groups() -> None:
    bank = case.bank_of(tiny.loaded(own_forward=True), prompts=2)
    bank.admit(0, 0, tiny.trial(), None)
    drawn = draw(bank, 0)
    assert len(drawn) == 32
    assert len(draw(bank, 0, 9)) == 12
    groups = [drawn.prompts[i : i + 4] for i in range(0, 32, 4)]
    assert all(len({prompt.id for prompt in group}) == 1 for group in groups)
    assert len({prompt.id for prompt in drawn.prompts}) == 8


def test_few_are_of_lengths_from_the_shortest_to_the_longest() -> None:
    _, drawn, _ = case.started()
    lengths = [len(sample.token_ids) for sample in drawn.samples]
    few = [lengths[i] for i in drawn.few(4)]
    assert few[0] == min(lengths)
    assert few[-1] == max(lengths)
    assert all(a <= b for a, b in pairwise(few))
    assert len(set(drawn.few(100))) == 32


def test_places_are_spread_over_both_ends() -> None:
    assert spread_evenly_to_the_end(10, 4) == [0, 3, 6, 9]
    assert spread_evenly_to_the_end(3, 8) == [0, 1, 2]
    assert spread_evenly_to_the_end(5, 1) == [0]


@pytest.mark.parametrize("own_forward", [True, False])
def test_what_a_step_draws_is_known_before_it(own_forward: bool) -> None:
    bank = case.bank_of(tiny.loaded(own_forward=own_forward), prompts=2)
    bank.admit(0, 0, tiny.trial(seed=5), None)
    step, will = draw_step(bank, 5), tiny.next_rollout(bank)
    assert torch.equal(step.rollout.ids_KNT, will.ids_KNT)
    assert torch.equal(step.rollout.mask_KNT, will.mask_KNT)


def test_the_trainers_numbers_are_those_of_a_steps_measurement() -> None:
    bank, _, _ = case.started()
    step = draw_step(bank, 0)
    found = trainer_logprobs(bank, step.rollout)
    entropy = found.entropy_KNT[step.rollout.mask_KNT].mean()
    (metrics,) = bank.train_step()
    assert metrics.values["train/entropy_token"] == pytest.approx(float(entropy), rel=1e-6)


def test_some_rows_are_scored_as_among_all() -> None:
    bank, drawn, found = case.started()
    some = trainer_logprobs(bank, rows_of(drawn.rollout, [3, 20]))
    assert torch.allclose(some.policy_KNT[0], found.policy_KNT[0, [3, 20]], atol=1e-5)


def test_any_ids_can_be_answered() -> None:
    bank, _, _ = case.started()
    answered = draw_after(bank, [[4, 5], [6, 7, 8]])
    assert answered.ids_KNT.shape[:2] == (1, 2)
    assert answered.prompts.ids.tolist() == [[0, 4, 5], [6, 7, 8]]


def test_the_start_setting_lies_in_the_middle_of_the_search() -> None:
    setting = start_setting(case.study(seed=7))
    assert setting.beta == pytest.approx(0.1)
    assert setting.penalty is Penalty.K2_LOSS
    assert (setting.learning_rate, setting.seed) == (pytest.approx(1e-2), 7)
    searched = {"beta": 0, "learning_rate": {"log": [1e-4, 1e-2]}}
    none = start_setting(case.study(search=searched))
    assert (none.beta, none.penalty) == (0, None)
    assert math.isclose(none.learning_rate, 1e-3)
