"""Packed tokens against lists of plain texts: each token once, prompts once a group, and the way back."""

from __future__ import annotations

from random import Random

import pytest
import torch
from torch import Tensor

from kltune.trainer.encode import PaddedPrompts, pad_left
from kltune.trainer.fused.packing import Ragged, find_prompts, pack, predicting

CPU = torch.device("cpu")
SEEDS = range(25)
Texts = list[tuple[list[int], list[int]]]
"""Prompt and completion of each row."""


def padded(texts: Texts, extra: int = 0) -> tuple[PaddedPrompts, Tensor, Tensor]:
    """As a rollout holds them: prompts padded on the left, completions on the right, ``extra`` columns too wide."""
    prompts = [prompt for prompt, _ in texts]
    completions = [completion for _, completion in texts]
    left = pad_left(prompts, 0, CPU, width=max(map(len, prompts)) + extra)
    width = max(map(len, completions)) + extra
    ids = torch.zeros(len(texts), width, dtype=torch.long)
    mask = torch.zeros(len(texts), width, dtype=torch.bool)
    for row, completion in enumerate(completions):
        ids[row, : len(completion)] = torch.tensor(completion)
        mask[row, : len(completion)] = True
    return left, ids, mask


def random_texts(seed: int) -> Texts:
    """Groups of any sizes; ids from 2 to 5, so that prompts begin alike and some come twice; padding's id occurs too."""
    random = Random(seed)
    texts: Texts = []
    for _ in range(random.randint(1, 4)):
        prompt = [random.choice((0, 2, 3)) for _ in range(random.randint(1, 5))]
        size = random.choice((3, random.randint(1, 4)))
        for _ in range(size):
            texts.append((prompt, [random.randint(0, 9) for _ in range(random.randint(1, 6))]))
    if seed % 3 == 2:  # a minibatch: any rows in any order
        random.shuffle(texts)
        texts = texts[: max(1, len(texts) // 2)]
    return texts


def runs(texts: Texts) -> list[list[int]]:
    """Prompts, once for all rows in a row that share it."""
    found: list[list[int]] = []
    for prompt, _ in texts:
        if not found or found[-1] != prompt:
            found.append(prompt)
    return found


def expected_tokens(texts: Texts) -> list[tuple[int, int]]:
    """(id, position in its own text) of each token that must go in."""
    prompts = [(token, at) for prompt in runs(texts) for at, token in enumerate(prompt)]
    return prompts + [
        (token, len(prompt) + at)
        for prompt, completion in texts
        for at, token in enumerate(completion[:-1])
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_token_that_is_needed_goes_in_once_with_the_position_in_its_own_text(
    seed: int,
) -> None:
    texts = random_texts(seed)
    prompts, ids, mask = padded(texts, extra=seed % 2)
    packed = pack(find_prompts(prompts), ids, mask)
    got = list(zip(packed.ids_M.tolist(), packed.positions_M.tolist(), strict=True))
    assert got == expected_tokens(texts)
    assert packed.num_prompt_tokens == sum(map(len, runs(texts)))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_state_lands_where_it_predicts_the_next_token_and_beyond_the_end_is_zero(
    seed: int,
) -> None:
    # the "state" of a token is a code of (its id, its position); a token's text is its own
    texts = random_texts(seed)
    prompts, ids, mask = padded(texts, extra=seed % 2)
    packed = pack(find_prompts(prompts), ids, mask)
    states = torch.stack([packed.ids_M, packed.positions_M], dim=1).float() + 1
    got = predicting(packed, states, ids.shape[1])
    assert got.shape == (*ids.shape, 2)
    for row, (prompt, completion) in enumerate(texts):
        text = prompt + completion
        for t in range(len(completion)):
            before = len(prompt) + t - 1
            assert got[row, t].tolist() == [text[before] + 1, before + 1], (row, t)


def test_beyond_the_longest_completion_nothing_is_left_uninitialised() -> None:
    prompts, ids, mask = padded([([2, 3], [4]), ([2], [5, 6])], extra=3)
    packed = pack(find_prompts(prompts), ids, mask)
    got = predicting(packed, torch.ones(len(packed.ids_M), 1), ids.shape[1])
    assert got[:, 2:].tolist() == [[[0.0]] * 3] * 2


@pytest.mark.parametrize("seed", SEEDS)
def test_a_completions_token_sees_its_prompt_and_itself_and_nothing_else(seed: int) -> None:
    texts = random_texts(seed)
    prompts, ids, mask = padded(texts)
    packed = pack(find_prompts(prompts), ids, mask)
    wide = max(len(completion) for _, completion in texts) - 1
    if not wide:
        assert packed.sees_R1TS is None
        return
    assert packed.sees_R1TS is not None
    longest = packed.prompts.ragged.width
    for row, (prompt, completion) in enumerate(texts):
        for t in range(len(completion) - 1):
            expected = [at < len(prompt) for at in range(longest)]
            expected += [at <= t for at in range(wide)]
            assert packed.sees_R1TS[row, 0, t].tolist() == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_padding_and_back_is_the_identity_and_padding_gets_no_gradient(seed: int) -> None:
    random = Random(seed)
    lengths = [random.randint(0, 5) for _ in range(random.randint(1, 6))] + [5]
    ragged = Ragged.of(torch.tensor(lengths))
    assert (ragged.num_tokens, ragged.width) == (sum(lengths), 5)
    tokens = torch.arange(1.0, 1 + 3 * sum(lengths)).view(-1, 3).requires_grad_(True)
    rows = ragged.pad(tokens)
    assert rows.shape == (len(lengths), 5, 3)
    assert torch.equal(ragged.unpad(rows), tokens)
    start = 0
    for row, length in enumerate(lengths):
        assert torch.equal(rows[row, :length], tokens[start : start + length])
        start += length
    # a token's gradient is that of its own place alone, whatever stands at padding
    pull = torch.rand(rows.shape, generator=torch.Generator().manual_seed(seed))
    (back,) = torch.autograd.grad((rows * pull).sum(), tokens)
    is_valid = torch.arange(5) < torch.tensor(lengths)[:, None]
    assert torch.equal(back, pull[is_valid])
    # and the other way round: 0 at padding
    wide = torch.rand(rows.shape, generator=torch.Generator().manual_seed(1)).requires_grad_(True)
    taken = ragged.unpad(wide)
    assert torch.equal(taken, wide[is_valid])
    weight = torch.arange(1.0, 1 + taken.numel()).view(taken.shape)
    (of_wide,) = torch.autograd.grad((taken * weight).sum(), wide)
    assert torch.equal(of_wide[is_valid], weight)
    assert not of_wide[~is_valid].any()


def test_gradients_of_padding_and_back_are_numerical_ones() -> None:
    ragged = Ragged.of(torch.tensor([2, 0, 3]))
    tokens = torch.rand(5, 2, dtype=torch.float64).requires_grad_(True)
    is_valid = (torch.arange(3) < torch.tensor([2, 0, 3])[:, None])[..., None]
    assert torch.autograd.gradcheck(lambda x: ragged.pad(x) * is_valid, tokens)
    wide = torch.rand(3, 3, 2, dtype=torch.float64).requires_grad_(True)
    assert torch.autograd.gradcheck(ragged.unpad, wide)


def test_rows_of_equal_length_need_no_index_and_no_copy() -> None:
    ragged = Ragged.of(torch.tensor([4, 4, 4]))
    assert ragged.places is None
    tokens = torch.rand(12, 2)
    rows = ragged.pad(tokens)
    assert rows.shape == (3, 4, 2)
    assert rows.data_ptr() == tokens.data_ptr()
    assert torch.equal(ragged.unpad(rows), tokens)


def test_completions_of_one_token_ask_for_their_prompts_alone() -> None:
    texts: Texts = [([2, 3], [5]), ([2, 3], [1]), ([4], [7])]
    prompts, ids, mask = padded(texts, extra=2)
    packed = pack(find_prompts(prompts), ids, mask)
    assert packed.ids_M.tolist() == [2, 3, 4]
    assert packed.sees_R1TS is None
    got = predicting(packed, torch.tensor([[1.0], [2.0], [3.0]]), 3)
    assert got[:, :, 0].tolist() == [[2, 0, 0], [2, 0, 0], [3, 0, 0]]


def test_one_completion_of_one_token_among_longer_ones_has_no_token_of_its_own() -> None:
    texts: Texts = [([2, 3], [5, 6, 7]), ([2, 3], [1]), ([2, 3], [8, 9])]
    prompts, ids, mask = padded(texts)
    packed = pack(find_prompts(prompts), ids, mask)
    assert packed.ids_M.tolist() == [2, 3, 5, 6, 8]
    assert packed.completions.lengths.tolist() == [2, 0, 1]


def test_prompts_of_equal_text_in_two_groups_are_read_for_both() -> None:
    texts: Texts = [([2, 3], [5, 6]), ([2, 3], [7, 8]), ([4], [5, 1]), ([2, 3], [9, 9])]
    prompts, ids, mask = padded(texts)
    found = find_prompts(prompts)
    assert found.of_row_R.tolist()[:3] == [0, 0, 1]
    own = found.to_rows(found.ids_PL)
    for row, (prompt, _) in enumerate(texts):
        assert own[row, : len(prompt)].tolist() == prompt
    packed = pack(found, ids, mask)
    assert packed.positions_M.tolist()[-4:] == [2, 2, 1, 2]


def test_a_prompt_that_holds_the_padding_id_is_no_shorter_one() -> None:
    # ids of the first two rows are equal, their masks are not
    texts: Texts = [([2], [5, 6]), ([0, 2], [5, 6]), ([0, 2], [7, 6])]
    prompts, ids, mask = padded(texts)
    assert prompts.ids[0].tolist() == prompts.ids[1].tolist()
    packed = pack(find_prompts(prompts), ids, mask)
    assert packed.ids_M.tolist() == [2, 0, 2, 5, 5, 7]
    assert packed.positions_M.tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    "order", [[0, 1, 2, 3, 4, 5], [5, 0, 3, 1, 4, 2], [0, 3, 1, 4, 2, 5], [2, 1, 0, 4]]
)
def test_what_belongs_to_a_prompt_reaches_its_own_rows_in_any_order(order: list[int]) -> None:
    texts: Texts = [([2, 3], [5]), ([2, 3], [6]), ([4], [5]), ([4], [6]), ([7, 8, 9], [5]), ([7, 8, 9], [6])]  # fmt: skip
    taken = [texts[i] for i in order]
    found = find_prompts(padded(taken)[0])
    lengths = found.to_rows(found.ragged.lengths)
    assert lengths.tolist() == [len(prompt) for prompt, _ in taken]
    own = found.to_rows(found.ids_PL)
    for row, (prompt, _) in enumerate(taken):
        assert own[row, : len(prompt)].tolist() == prompt


def test_each_prompt_of_a_rollout_is_read_once() -> None:
    texts: Texts = [(prompt, [5, 6, 1]) for prompt in ([2], [3, 4], [2, 2]) for _ in range(4)]
    prompts, ids, mask = padded(texts, extra=5)
    packed = pack(find_prompts(prompts), ids, mask)
    assert packed.num_prompt_tokens == 5
    assert len(packed.ids_M) == 5 + 12 * 2
