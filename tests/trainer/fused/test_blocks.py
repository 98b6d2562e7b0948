"""Which models are of a known family, and that joining layers leaves the model what it was."""

from __future__ import annotations

import families
import pytest
import tiny
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from kltune.trainer.fused.blocks import Blocks, Joined, find_blocks
from kltune.trainer.lora import attach, detach
from kltune.trainer.model import LoadedModel

KNOWN = pytest.mark.parametrize("name", families.KNOWN)


def blocks_of(model: LoadedModel) -> Blocks:
    found = find_blocks(model.body, model.model.config)
    assert found is not None
    return found


def layer(body: nn.Module, name: str) -> nn.Linear:
    found = body.get_submodule(name)
    return getattr(found, "base", found)


def logits(model: LoadedModel) -> Tensor:
    ids = torch.randint(2, 30, (3, 7), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return model.model(input_ids=ids).logits


def pairs(blocks: Blocks) -> list[tuple[Joined, str, slice]]:
    return [
        (joined, name, span)
        for block in blocks.layers
        for joined in block.joined
        for name, span in zip(joined.names, joined.spans, strict=True)
    ]


@KNOWN
def test_every_linear_layer_is_joined_once_and_its_rows_are_its_own(name: str) -> None:
    model = families.KNOWN[name]()
    before = {n: p.clone() for n, p in model.body.named_parameters()}
    blocks = blocks_of(model)
    found = pairs(blocks)
    linear = [n for n, m in model.body.named_modules() if isinstance(m, nn.Linear)]
    assert sorted(n for _, n, _ in found) == sorted(linear)
    for joined, name_, span in found:
        assert torch.equal(joined.weight_OI[span], before[f"{name_}.weight"])
        bias = before.get(f"{name_}.bias")
        if bias is not None:
            assert joined.bias_O is not None
            assert torch.equal(joined.bias_O[span], bias)
        elif joined.bias_O is not None:
            assert not joined.bias_O[span].any()
    assert blocks.num_parameters == sum(before[f"{n}.weight"].numel() for n in linear)


@KNOWN
def test_the_model_is_what_it_was_and_nothing_is_held_twice(name: str) -> None:
    model = families.KNOWN[name]()
    before, expected = {k: v.clone() for k, v in model.model.state_dict().items()}, logits(model)
    blocks = blocks_of(model)
    after = model.model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[k], before[k]) for k in before)
    torch.testing.assert_close(logits(model), expected, rtol=0, atol=0)
    for joined, name_, span in pairs(blocks):
        own = layer(model.body, name_).weight
        assert own.data_ptr() == joined.weight_OI[span].data_ptr()
        assert not own.requires_grad


@KNOWN
def test_the_shapes_are_those_of_the_config(name: str) -> None:
    model = families.KNOWN[name]()
    config, blocks = model.model.config, blocks_of(model)
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    assert (blocks.num_heads, blocks.num_kv_heads, blocks.head_width, blocks.epsilon) == (
        config.num_attention_heads,
        config.num_key_value_heads,
        width,
        config.rms_norm_eps,
    )
    assert len(blocks.layers) == config.num_hidden_layers
    assert (blocks.layers[0].query_norm is None) == (name != "qwen3")


def test_layers_that_carry_adapters_are_found_too_and_stay_joined_without_them() -> None:
    model = tiny.loaded()
    attach(model.body, 2, 4, 8)
    blocks = blocks_of(model)
    names = [name for _, name, _ in pairs(blocks)]
    assert names[:3] == [f"layers.0.self_attn.{n}_proj" for n in "qkv"]
    detach(model.body)
    for joined, name, span in pairs(blocks):
        own = layer(model.body, name).weight
        assert own.data_ptr() == joined.weight_OI[span].data_ptr()


def test_joining_twice_is_joining_once() -> None:
    model = tiny.loaded()
    expected = logits(model)
    first, second = blocks_of(model), blocks_of(model)
    for (one, _, _), (other, _, _) in zip(pairs(first), pairs(second), strict=True):
        assert torch.equal(one.weight_OI, other.weight_OI)
    assert torch.equal(logits(model), expected)


UNKNOWN = {
    "another family": families.opt,
    "a sliding window": families.mistral,
    "a sliding window in some layers": lambda: families.qwen2(
        use_sliding_window=True, sliding_window=4, max_window_layers=1
    ),
    "another activation": lambda: families.llama(hidden_act="gelu"),
    "dropout in attention": lambda: families.llama(attention_dropout=0.1),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_any_other_model_has_no_blocks(name: str) -> None:
    model = UNKNOWN[name]()
    before = {k: v.data_ptr() for k, v in model.model.state_dict().items()}
    assert find_blocks(model.body, model.model.config) is None
    assert {k: v.data_ptr() for k, v in model.model.state_dict().items()} == before


def test_a_config_that_names_no_family_has_no_blocks() -> None:
    assert find_blocks(nn.Linear(2, 2), object()) is None


def test_a_window_that_is_switched_off_is_none() -> None:
    config = Qwen2Config(**families.SHAPE, use_sliding_window=False, sliding_window=4)
    model = Qwen2ForCausalLM(config)
    assert find_blocks(model.model, model.config) is not None
    llama = LlamaForCausalLM(LlamaConfig(**families.SHAPE))
    assert find_blocks(llama.model, llama.config) is not None
