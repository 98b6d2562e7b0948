"""Prompts encoded once, spread evenly, and samples with exactly their valid ids."""

from __future__ import annotations

import pytest
import tiny
import torch

from kltune.errors import SpecError
from kltune.tasks.protocol import Prompt
from kltune.trainer.data import EncodedPrompts, TaskData, samples_of, spread_evenly, with_text_rules
from kltune.trainer.encode import pad_left
from kltune.trainer.rollout import Rollout

CPU = torch.device("cpu")


def test_indices_are_spread_over_the_whole_range() -> None:
    assert spread_evenly(10, 5) == [0, 2, 4, 6, 8]
    assert spread_evenly(10, 3) == [0, 3, 6]
    assert spread_evenly(3, 10) == [0, 1, 2]
    assert spread_evenly(7, 1) == [0]
    for count in range(1, 30):
        for wanted in range(1, count + 1):
            indices = spread_evenly(count, wanted)
            assert len(set(indices)) == wanted
            assert max(indices) < count


def test_samples_hold_the_valid_ids_and_text_without_special_tokens() -> None:
    model = tiny.loaded()
    ids = torch.tensor([[[5, 6, 1, 0], [7, 8, 9, 10]], [[1, 0, 0, 0], [0, 5, 1, 0]]])
    mask = torch.tensor(
        [[[1, 1, 1, 0], [1, 1, 1, 1]], [[1, 0, 0, 0], [1, 1, 1, 0]]]
    ).bool()  # the last row sampled the pad token itself: a valid token by position
    ended = torch.tensor([[True, False], [True, True]])
    drawn = Rollout(pad_left([[2]] * 4, 0, CPU), ids, mask, torch.zeros(2, 2, 4), ended)
    prompts = tiny.PROMPTS[:2]
    first, second = samples_of(model, drawn, 0, prompts)
    assert (first.token_ids, first.text, first.ended) == ((5, 6, 1), "w3 w4", True)
    assert (second.token_ids, second.text, second.ended) == ((7, 8, 9, 10), "w5 w6 w7 w8", False)
    assert [s.prompt for s in (first, second)] == list(prompts)
    assert [s.token_ids for s in samples_of(model, drawn, 1, prompts)] == [(1,), (0, 5, 1)]


def test_full_width_pads_to_the_longest_of_all_prompts() -> None:
    encoded = tiny.encoded(tiny.loaded())
    shortest = min(range(len(encoded)), key=lambda i: len(encoded.ids[i]))
    assert encoded.pad([shortest], 0, CPU, full_width=False).ids.shape[1] == len(
        encoded.ids[shortest]
    )
    assert encoded.pad([shortest], 0, CPU, full_width=True).ids.shape[1] == encoded.width


def test_prompts_of_two_splits_with_the_same_ids_and_other_words_are_counted() -> None:
    train = EncodedPrompts((Prompt("a", "x"), Prompt("b", "y")), ((1, 2), (3,)))
    select = EncodedPrompts(
        (Prompt("c", "z"), Prompt("d", "y"), Prompt("e", "w")), ((3,), (3,), (4,))
    )
    data = TaskData(train, select, tiny.CountWord("w3"), tiny.CountWord("w4"))
    assert data.same_ids() == 1, "the same words are told by another line"


def test_a_stop_string_that_is_a_token_which_the_model_has_not_is_refused() -> None:
    model = tiny.loaded()
    model.tokenizer.add_special_tokens({"additional_special_tokens": ["<stop>"]})
    with pytest.raises(SpecError, match=r"trainer\.stop needs id 30 \('<stop>'\)"):
        with_text_rules(model, ["<stop>"], None)
    assert with_text_rules(model, ["w3"], None).text_rules.stop == ("w3",)
