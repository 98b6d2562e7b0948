"""Attention over packed tokens against plain causal attention of each text alone, values and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kltune.trainer.encode import pad_left
from kltune.trainer.fused.attention import attend
from kltune.trainer.fused.packing import Packed, find_prompts, pack

CPU = torch.device("cpu")
WIDTH = 6
Texts = list[tuple[int, int]]
"""Tokens of the prompt, and completion tokens, of each row."""
TEXTS: dict[str, Texts] = {
    "unequal": [(3, 4), (3, 1), (5, 2), (5, 6)],
    "equal": [(3, 4), (3, 4), (3, 4)],
    "one token each": [(3, 1), (2, 1)],
    "any order": [(5, 3), (3, 2), (5, 1), (2, 4)],
    "one row": [(2, 3)],
}


def packed_of(texts: Texts) -> Packed:
    # a prompt is told by its length alone: rows of equal length share it
    prompts = pad_left([[10 + n] * n for n, _ in texts], 0, CPU)
    width = max(m for _, m in texts)
    mask = torch.arange(width) < torch.tensor([m for _, m in texts])[:, None]
    return pack(find_prompts(prompts), torch.full(mask.shape, 5), mask)


def rows_of(texts: Texts) -> list[tuple[list[int], list[int]]]:
    """Where each row's prompt and completion tokens stand among the packed ones."""
    spans: list[list[int]] = []
    of_row: list[int] = []
    place = 0
    for row, (n, _) in enumerate(texts):
        if row == 0 or texts[row - 1][0] != n:
            spans.append(list(range(place, place + n)))
            place += n
        of_row.append(len(spans) - 1)
    found = []
    for row, (_, m) in enumerate(texts):
        found.append((spans[of_row[row]], list(range(place, place + m - 1))))
        place += m - 1
    return found


def plain(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """``[T, H, d]`` causal attention of one text, heads in turn, key heads shared in blocks."""
    group = query.shape[1] // keys.shape[1]
    hidden = torch.ones(len(query), len(query), dtype=torch.bool).triu(1)
    heads = []
    for h in range(query.shape[1]):
        scores = query[:, h] @ keys[:, h // group].T / WIDTH**0.5
        weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        heads.append(weights @ values[:, h // group])
    return torch.stack(heads, dim=1)


def expected(query: Tensor, both: Tensor, texts: Texts) -> Tensor:
    """A token that several rows share is the same in each."""
    keys, values = both.chunk(2, dim=1)
    out: dict[int, Tensor] = {}
    for prompt, completion in rows_of(texts):
        places = prompt + completion
        seen = plain(query[places], keys[places], values[places])
        out |= dict(zip(places, seen, strict=True))
    return torch.stack([out[place] for place in range(len(query))])


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 2), (4, 1), (3, 3)])
@pytest.mark.parametrize("name", TEXTS)
def test_each_token_sees_what_it_sees_in_its_own_text(name: str, heads: int, kv_heads: int) -> None:
    texts = TEXTS[name]
    packed = packed_of(texts)
    generator = torch.Generator().manual_seed(0)
    count = len(packed.ids_M)
    query = torch.randn(count, heads, WIDTH, generator=generator, dtype=torch.float64)
    both = torch.randn(count, 2 * kv_heads, WIDTH, generator=generator, dtype=torch.float64)
    pull = torch.randn(count, heads, WIDTH, generator=generator, dtype=torch.float64)
    found = []
    for function, given in ((attend, packed), (expected, texts)):
        leaves = [tensor.clone().requires_grad_(True) for tensor in (query, both)]
        out = function(*leaves, given)
        found.append([out, *torch.autograd.grad((out * pull).sum(), leaves)])
    for got, wanted in zip(*found, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", TEXTS)
def test_what_stands_in_another_row_changes_not_one_bit(name: str) -> None:
    texts = TEXTS[name]
    packed = packed_of(texts)
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(len(packed.ids_M), 4, WIDTH, generator=generator)
    both = torch.randn(len(packed.ids_M), 4, WIDTH, generator=generator)
    before = attend(query, both, packed)
    for prompt, completion in rows_of(texts):
        others = [i for i in range(len(query)) if i not in prompt + completion]
        changed_query, changed = query.clone(), both.clone()
        changed_query[others], changed[others] = 30.0, -70.0
        after = attend(changed_query, changed, packed)
        assert torch.equal(after[completion], before[completion])
        assert torch.equal(after[prompt], before[prompt])
