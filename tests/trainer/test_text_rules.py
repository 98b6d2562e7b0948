"""Stop strings and answers by hand, and in real rollouts: the same whoever decodes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tiny
import torch

from kltune.tasks.protocol import Prompt
from kltune.trainer.data import samples_of, with_text_rules
from kltune.trainer.encode import PromptEncoder, pad_left
from kltune.trainer.model import LoadedModel
from kltune.trainer.rollout import Rollout, Sampling, rollout
from kltune.trainer.text_rules import NO_RULES, text_rules

WORDS = 28


def ids(text: str) -> list[int]:
    return tiny.tokenizer().encode(text)


def test_a_stop_string_ends_with_the_token_that_completes_it() -> None:
    rules = text_rules(tiny.tokenizer(), ("w3 w4",), None)
    assert rules.place_of_stop(ids("w1 w3 w2 w3 w4 w5 w3 w4")) == 5
    assert rules.place_of_stop(ids("w3 w2 w4")) is None
    assert rules.place_of_stop([]) is None


def test_the_first_of_several_stop_strings_ends_the_completion() -> None:
    rules = text_rules(tiny.tokenizer(), ("w9", "w3 w4"), None)
    assert rules.place_of_stop(ids("w1 w3 w4 w9")) == 3
    assert rules.parts("w1 w3 w4 w9") == ("", "w1 ")


def test_a_stop_string_that_is_a_special_token_is_a_stop_id() -> None:
    tokenizer = tiny.tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["w7"]})
    rules = text_rules(tokenizer, ("w7", "w8"), None)
    assert (rules.stop, rules.stop_ids) == (("w8",), (9,))
    loaded = with_text_rules(replace(tiny.loaded(), tokenizer=tokenizer), ("w7", "w8"), None)
    assert loaded.stop_ids == (1, 9)


def test_the_answer_is_what_follows_the_first_marker_and_nothing_without_it() -> None:
    rules = text_rules(tiny.tokenizer(), (), "</think>")
    assert rules.parts("a b</think>c</think>d") == ("a b</think>", "c</think>d")
    assert rules.parts("a b") == ("a b", "")
    assert NO_RULES.parts("a b</think>c") == ("", "a b</think>c")


def drawn(loaded: LoadedModel, *, compact: bool, length: int = 12) -> Rollout:
    encoder = PromptEncoder(loaded.tokenizer, tiny.MODEL)
    rows = [encoder(Prompt(str(i), text)) for i, text in enumerate(("w1 w2", "w3", "w5 w1 w6"))]
    uniforms = torch.rand((1, 24, length), generator=torch.Generator().manual_seed(3))
    sampling = Sampling(8, length, 1.0, compact)
    return rollout(loaded, pad_left(rows, loaded.pad_id, loaded.device), uniforms, sampling)


@pytest.mark.parametrize("own_forward", [False, True])
@pytest.mark.parametrize("compact", [False, True])
def test_a_rollout_ends_at_stop_strings_and_is_otherwise_the_same(
    own_forward: bool, compact: bool
) -> None:
    plain = tiny.loaded(own_forward=own_forward)
    free = drawn(plain, compact=compact)
    texts = plain.tokenizer.batch_decode(free.ids_KNT[0].tolist(), skip_special_tokens=True)
    words = [word for text in texts for word in text.split()[:-2]]
    stop = max(set(words), key=words.count)
    stops = with_text_rules(plain, (f"{stop} ", f" {stop}"), None)
    cut = drawn(stops, compact=compact)
    width = cut.ids_KNT.shape[2]
    hit = 0
    for row in range(24):
        n, m = int(cut.lengths_KN[0, row]), int(free.lengths_KN[0, row])
        whole, kept = free.ids_KNT[0, row, :m].tolist(), cut.ids_KNT[0, row, :n].tolist()
        assert kept == whole[:n]
        assert cut.ids_KNT[0, row, n:].eq(plain.pad_id).all()
        assert cut.sampler_logprobs_KNT[0, row, n:].eq(0).all()
        close = torch.testing.assert_close
        close(cut.sampler_logprobs_KNT[0, row, :n], free.sampler_logprobs_KNT[0, row, :n])
        place = stops.text_rules.place_of_stop(whole)
        assert n == (m if place is None else place)
        assert bool(cut.ended_KN[0, row]) == (place is not None or bool(free.ended_KN[0, row]))
        hit += n < m
    assert hit > 2
    assert width <= free.ids_KNT.shape[2]


def test_samples_end_before_the_stop_string_and_keep_its_tokens() -> None:
    loaded = with_text_rules(tiny.loaded(), ("w4",), None)
    row = ids("w2 w3 w4")
    rollout_ = Rollout(
        pad_left([[2]], 0, loaded.device),
        torch.tensor([[row]]),
        torch.ones((1, 1, 3), dtype=torch.bool),
        torch.zeros((1, 1, 3)),
        torch.tensor([[True]]),
    )
    (sample,) = samples_of(loaded, rollout_, 0, [Prompt("p", "w1")])
    assert (sample.text.strip(), sample.token_ids, sample.thought) == ("w2 w3", tuple(row), "")


def test_scorers_see_the_answer_and_people_the_thought_too() -> None:
    loaded = with_text_rules(tiny.loaded(), (), "w4")
    row = ids("w2 w4 w3")
    rollout_ = Rollout(
        pad_left([[2]], 0, loaded.device),
        torch.tensor([[row]]),
        torch.ones((1, 1, 3), dtype=torch.bool),
        torch.zeros((1, 1, 3)),
        torch.tensor([[False]]),
    )
    (sample,) = samples_of(loaded, rollout_, 0, [Prompt("p", "w1")])
    assert (sample.thought, sample.text) == ("w2 w4", " w3")


def test_a_drawn_block_is_cut_at_the_stop_string_of_each_row() -> None:
    rules = text_rules(tiny.tokenizer(), ("w3 w4",), None)
    ids_KNT = torch.tensor([[ids("w3 w4 w5 w6"), ids("w1 w2 w3 w5")]])
    mask_KNT = torch.ones((1, 2, 4), dtype=torch.bool)
    drawn_block = ids_KNT, mask_KNT, torch.full((1, 2, 4), -1.0), torch.tensor([[False, False]])
    cut_ids, cut_mask, logprobs, ended = rules.cut(drawn_block, 0)
    assert cut_ids.tolist() == [[[*ids("w3 w4"), 0, 0], ids("w1 w2 w3 w5")]]
    assert cut_mask.tolist() == [[[True, True, False, False], [True] * 4]]
    assert logprobs.tolist() == [[[-1.0, -1.0, 0.0, 0.0], [-1.0] * 4]]
    assert ended.tolist() == [[True, False]]
    assert mask_KNT.all()


def test_decoding_stops_a_live_row_at_once_and_leaves_the_rest() -> None:
    rules = text_rules(tiny.tokenizer(), ("w3 w4",), None)
    rows = [ids("w3 w4 w1"), ids("w1 w3 w4"), ids("w3 w4 w1")]
    live = torch.tensor([[True, True, False]])
    found = [rules.ended_KN(torch.tensor([rows]), live, step).tolist() for step in range(3)]
    assert found == [[[False, False, False]], [[True, False, False]], [[True, True, False]]]
