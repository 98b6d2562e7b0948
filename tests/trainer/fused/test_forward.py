"""Our forward against transformers' own last hidden states, text by text."""

from __future__ import annotations

import families
import pytest
import torch
from torch import Tensor

from kltune.trainer.encode import pad_left
from kltune.trainer.fused.blocks import find_blocks
from kltune.trainer.fused.forward import forward
from kltune.trainer.fused.linear import BaseLinears
from kltune.trainer.fused.packing import Packed, find_prompts, pack, predicting
from kltune.trainer.model import LoadedModel

CPU = torch.device("cpu")
KNOWN = pytest.mark.parametrize("name", families.KNOWN)
LENGTHS = ((2, 5), (2, 1), (9, 3), (9, 7), (4, 1))
"""Of prompts and completions."""


def texts(lengths: tuple[tuple[int, int], ...] = LENGTHS) -> list[tuple[list[int], list[int]]]:
    generator = torch.Generator().manual_seed(0)
    return [
        (
            [(7 * n + i) % 28 + 2 for i in range(n)],
            torch.randint(2, 30, (m,), generator=generator).tolist(),
        )
        for n, m in lengths
    ]


def packed(rows: list[tuple[list[int], list[int]]]) -> Packed:
    width = max(len(completion) for _, completion in rows)
    ids = torch.tensor([completion + [0] * (width - len(completion)) for _, completion in rows])
    mask = torch.arange(width) < torch.tensor([len(completion) for _, completion in rows])[:, None]
    return pack(find_prompts(pad_left([prompt for prompt, _ in rows], 0, CPU)), ids, mask)


def ours(model: LoadedModel, given: Packed) -> Tensor:
    blocks = find_blocks(model.body, model.model.config)
    assert blocks is not None
    joined = [layer.joined for layer in blocks.layers]
    base = BaseLinears(
        [[j.weight_OI for j in layer] for layer in joined],
        [[j.bias_O for j in layer] for layer in joined],
    )
    return forward(blocks, base, given)


def theirs(model: LoadedModel, text: list[int]) -> Tensor:
    with torch.no_grad():
        return model.body(input_ids=torch.tensor([text]), use_cache=False).last_hidden_state[0]


@KNOWN
def test_every_state_is_that_of_transformers_forward_over_the_text_alone(name: str) -> None:
    model, rows = families.KNOWN[name](), texts()
    expected = [theirs(model, prompt + completion) for prompt, completion in rows]
    given = packed(rows)
    states = ours(model, given)
    found = predicting(given, states, max(m for _, m in LENGTHS))
    for row, (prompt, completion) in enumerate(rows):
        wanted = expected[row][len(prompt) - 1 : -1]
        torch.testing.assert_close(found[row, : len(completion)], wanted, rtol=0, atol=3e-5)
    # and the prompts' own states before the last
    first = states[: len(rows[0][0])]
    torch.testing.assert_close(first, expected[0][: len(first)], rtol=0, atol=3e-5)


@KNOWN
def test_long_texts_reach_positions_that_are_scaled(name: str) -> None:
    # beyond the original context of the llama3 rule, at angles that would show a wrong one
    model, rows = families.KNOWN[name](), texts(((40, 30), (40, 50), (61, 2)))
    given = packed(rows)
    found = predicting(given, ours(model, given), 50)
    for row, (prompt, completion) in enumerate(rows):
        wanted = theirs(model, prompt + completion)[len(prompt) - 1 : -1]
        torch.testing.assert_close(found[row, : len(completion)], wanted, rtol=0, atol=3e-5)


def test_the_families_differ_where_they_should() -> None:
    # else a forgotten bias, norm or scaling would not show
    rows = texts(((40, 30), (40, 50)))
    states = {name: ours(make(), packed(rows)) for name, make in families.KNOWN.items()}
    for name, other in (
        ("llama3-positions", "llama"),
        ("llama-biased", "llama"),
        ("qwen2", "llama"),
    ):
        assert float((states[name] - states[other]).abs().max()) > 0.1, name


def test_keys_and_values_of_every_layer_can_be_kept() -> None:
    model, rows = families.qwen3(), texts()
    given = packed(rows)
    blocks = find_blocks(model.body, model.model.config)
    assert blocks is not None
    joined = [layer.joined for layer in blocks.layers]
    base = BaseLinears(
        [[j.weight_OI for j in layer] for layer in joined],
        [[j.bias_O for j in layer] for layer in joined],
    )
    kept: list[Tensor] = []
    with torch.no_grad():
        forward(blocks, base, given, kept)
        prompt, _ = rows[0]
        cache = model.body(input_ids=torch.tensor([prompt]), use_cache=True).past_key_values
    assert len(kept) == 2
    for layer, keys_values in zip(cache.layers, kept, strict=True):
        own = keys_values[: len(prompt)].transpose(0, 1)
        wanted = torch.cat([layer.keys[0], layer.values[0]])
        torch.testing.assert_close(own, wanted, rtol=0, atol=2e-5)
