"""Stacked adapters against each slot alone with its weights written out."""

from __future__ import annotations

import copy

import pytest
import tiny
import torch
from torch import Tensor, nn

from kltune.errors import SpecError
from kltune.trainer.lora import AdapterStack, StackedLoRALinear, attach, detach, find_targets

RANK, ALPHA = 4, 12


def body() -> nn.Module:
    return tiny.llama().model.eval().requires_grad_(False)


def filled(stack: AdapterStack, scale: float = 0.2) -> AdapterStack:
    """Random A and B in every slot: B zero would hide faults."""
    drawn = torch.randn(stack.flat_KP.shape, generator=torch.Generator().manual_seed(5))
    stack.flat_KP.copy_(scale * drawn)
    return stack


def ids(rows: int) -> Tensor:
    return torch.randint(2, 30, (rows, 7), generator=torch.Generator().manual_seed(1))


def materialised(plain: nn.Module, stack: AdapterStack, slot: int) -> nn.Module:
    """A copy of the plain body with W + (alpha / r) B A in every linear layer."""
    merged = copy.deepcopy(plain)
    named = stack.tensors(slot)
    for target in stack.targets:
        a, b = (named[f"{target.name}.lora_{kind}.weight"] for kind in "AB")
        merged.get_submodule(target.name).weight.add_(ALPHA / RANK * b @ a)
    return merged


def test_a_fresh_adapter_changes_not_one_bit() -> None:
    carrier = body()
    expected = carrier(ids(6)).last_hidden_state
    stack = attach(carrier, 3, RANK, ALPHA)
    for slot in range(3):
        stack.reset(slot, seed=slot)
    with stack.use(stack.view([0, 1, 2])):
        assert torch.equal(carrier(ids(6)).last_hidden_state, expected)
    assert stack.flat_KP.any(), "A is not zero"


def test_without_a_view_the_output_is_the_reference() -> None:
    carrier = body()
    expected = carrier(ids(6)).last_hidden_state
    stack = filled(attach(carrier, 3, RANK, ALPHA))
    assert torch.equal(carrier(ids(6)).last_hidden_state, expected)
    with stack.use(stack.view([0, 1, 2])):
        assert not torch.equal(carrier(ids(6)).last_hidden_state, expected)
        with stack.use(None):
            assert torch.equal(carrier(ids(6)).last_hidden_state, expected)
        assert not torch.equal(carrier(ids(6)).last_hidden_state, expected)
    assert stack.active is None


def test_adapters_are_off_again_after_an_error() -> None:
    stack = attach(body(), 1, RANK, ALPHA)
    with pytest.raises(ZeroDivisionError), stack.use(stack.view([0])):
        raise ZeroDivisionError
    assert stack.active is None


@pytest.mark.parametrize("slots", [[0, 1, 2], [0, 2], [1]])
def test_each_block_of_rows_equals_its_slot_alone_with_weights_written_out(
    slots: list[int],
) -> None:
    plain, carrier = body(), body()
    stack = filled(attach(carrier, 3, RANK, ALPHA))
    rows = ids(2 * len(slots))
    with torch.no_grad(), stack.use(stack.view(slots)):
        together = carrier(rows).last_hidden_state
    for place, slot in enumerate(slots):
        block = slice(2 * place, 2 * place + 2)
        with torch.no_grad():
            alone = materialised(plain, stack, slot)(rows[block]).last_hidden_state
        # Values of order 1; processors add in other orders (6.6e-6 apart on one of them).
        torch.testing.assert_close(together[block], alone, rtol=1e-5, atol=2e-5)
        assert float((together[block] - plain(rows[block]).last_hidden_state).abs().max()) > 0.1


@pytest.mark.parametrize("slots", [[0, 1, 2], [0, 2], [1]])
def test_gradients_of_a_view_come_home_to_the_rows_of_their_slots(slots: list[int]) -> None:
    carrier = body()
    stack = filled(attach(carrier, 3, RANK, ALPHA))
    stack.grad_KP.fill_(7.0)
    view = stack.view(slots)
    view.grad_KP.zero_()
    rows = ids(len(slots))
    weights = torch.randn(32, generator=torch.Generator().manual_seed(2))
    with stack.use(view):
        view.add_gradients((carrier(rows).last_hidden_state @ weights).sum())
    stack.collect(view, slots)
    for place, slot in enumerate(slots):
        plain, named = body(), stack.tensors(slot)
        leaves = {name: t.requires_grad_(True) for name, t in named.items()}
        merged = {
            f"{t.name}.weight": plain.get_submodule(t.name).weight
            + ALPHA / RANK * leaves[f"{t.name}.lora_B.weight"] @ leaves[f"{t.name}.lora_A.weight"]
            for t in stack.targets
        }
        output = torch.func.functional_call(plain, merged, (rows[place : place + 1],))
        grads = torch.autograd.grad(
            (output.last_hidden_state @ weights).sum(), list(leaves.values())
        )
        expected = torch.cat([g.flatten() for g in grads])
        error = (stack.grad_KP[slot] - expected).norm() / expected.norm()
        assert float(error) < 1e-5, slot
    for slot in {0, 1, 2} - set(slots):
        assert (stack.grad_KP[slot] == 7.0).all(), "a slot outside the view was touched"


def test_gradients_add_up_until_they_are_zeroed() -> None:
    carrier = body()
    stack = filled(attach(carrier, 2, RANK, ALPHA))
    view = stack.view([0, 1])

    def add() -> None:
        with stack.use(view):
            view.add_gradients(carrier(ids(2)).last_hidden_state.sum())

    add()
    once = view.grad_KP.clone()
    add()
    torch.testing.assert_close(view.grad_KP, 2 * once)


@pytest.mark.parametrize("slots", [[0, 1, 2], [1, 2], [2]])
def test_a_view_of_a_range_of_slots_is_the_storage_and_made_once(slots: list[int]) -> None:
    stack = filled(attach(body(), 3, RANK, ALPHA))
    view = stack.view(slots)
    assert view.flat_KP.data_ptr() == stack.flat_KP[slots[0]].data_ptr()
    assert view.grad_KP.data_ptr() == stack.grad_KP[slots[0]].data_ptr()
    assert view.num_slots == len(slots)
    assert stack.view(slots) is view
    before = stack.grad_KP.normal_().clone()
    stack.collect(view, slots)
    assert torch.equal(stack.grad_KP, before)


@pytest.mark.parametrize("slots", [[0, 2], [2, 1], [1, 0, 2], [1, 1]])
def test_a_view_of_any_other_choice_is_a_copy(slots: list[int]) -> None:
    stack = filled(attach(body(), 3, RANK, ALPHA))
    view = stack.view(slots)
    assert torch.equal(view.flat_KP, stack.flat_KP[slots])
    view.flat_KP.zero_()
    assert stack.flat_KP.any(dim=1).all()


def test_views_of_ranges_see_what_the_optimiser_wrote() -> None:
    carrier = body()
    stack = filled(attach(carrier, 3, RANK, ALPHA))
    view = stack.view([1, 2])
    filled(stack, scale=0.4)
    with torch.no_grad(), stack.use(view):
        got = carrier(ids(2)).last_hidden_state
    for place, slot in enumerate([1, 2]):
        alone = materialised(body(), stack, slot)(ids(2)[place : place + 1]).last_hidden_state
        torch.testing.assert_close(got[place : place + 1], alone, rtol=1e-5, atol=5e-6)


def test_a_row_is_copied_whole_or_mixed_in() -> None:
    stack = filled(attach(body(), 3, RANK, ALPHA))
    before = stack.flat_KP.clone()
    stack.copy_row(0, 2, mixture=0.25)
    torch.testing.assert_close(stack.flat_KP[2], 0.25 * before[0] + 0.75 * before[2])
    assert torch.equal(stack.flat_KP[:2], before[:2])
    stack.flat_KP[1] = torch.nan
    stack.copy_row(0, 1)
    assert torch.equal(stack.flat_KP[1], before[0])


def test_an_adapters_start_depends_on_the_seed_and_not_on_the_slot() -> None:
    stack = attach(body(), 3, RANK, ALPHA)
    stack.reset(0, seed=4)
    filled(stack)
    stack.reset(0, seed=4)
    stack.reset(2, seed=4)
    stack.reset(1, seed=5)
    assert torch.equal(stack.flat_KP[0], stack.flat_KP[2])
    assert not torch.equal(stack.flat_KP[0], stack.flat_KP[1])


def test_a_starts_like_pefts_and_b_at_zero() -> None:
    stack = attach(body(), 1, RANK, ALPHA)
    stack.reset(0, seed=0)
    named = stack.tensors(0)
    spreads = []
    for target in stack.targets:
        a, b = named[f"{target.name}.lora_A.weight"], named[f"{target.name}.lora_B.weight"]
        assert not b.any()
        bound = target.num_in**-0.5
        assert float(a.abs().max()) <= bound
        spreads.append(float(a.std()) / bound * 3**0.5)  # 1 for a uniform in +-bound
    assert sum(spreads) / len(spreads) == pytest.approx(1, abs=0.05)
    starts = [named[f"{t.name}.lora_A.weight"] for t in stack.targets if t.num_in == 32]
    assert all(not torch.equal(starts[0], other) for other in starts[1:]), (
        "layers must not start alike"
    )


def test_every_linear_layer_of_the_blocks_is_a_target() -> None:
    names = {name for name, _ in find_targets(body())}
    parts = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
             "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")  # fmt: skip
    assert names == {f"layers.{layer}.{part}" for layer in (0, 1) for part in parts}


def test_detach_gives_the_layers_back() -> None:
    carrier = body()
    before = {name: id(module) for name, module in carrier.named_modules()}
    attach(carrier, 2, RANK, ALPHA)
    assert any(isinstance(m, StackedLoRALinear) for m in carrier.modules())
    detach(carrier)
    assert {name: id(module) for name, module in carrier.named_modules()} == before


def test_a_second_bank_on_one_model_does_not_stack_adapters_on_adapters() -> None:
    carrier = body()
    first = filled(attach(carrier, 2, RANK, ALPHA))
    attach(carrier, 3, RANK, ALPHA)
    layers = [m for m in carrier.modules() if isinstance(m, StackedLoRALinear)]
    assert len(layers) == len(first.targets)
    assert all(type(layer.base) is nn.Linear for layer in layers)


def test_clear_leaves_nothing_of_a_trial() -> None:
    stack = filled(attach(body(), 2, RANK, ALPHA))
    stack.grad_KP.fill_(1.0)
    stack.clear(0)
    assert not stack.flat_KP[0].any()
    assert not stack.grad_KP[0].any()
    assert stack.flat_KP[1].any()


def test_a_model_without_linear_layers_is_refused() -> None:
    with pytest.raises(SpecError, match="has no linear layer"):
        attach(nn.Sequential(nn.Embedding(3, 4)), 1, RANK, ALPHA)


def test_adapters_stay_float32_beside_a_bfloat16_base() -> None:
    carrier = body().bfloat16()
    expected = carrier(ids(2)).last_hidden_state
    stack = attach(carrier, 2, RANK, ALPHA)
    stack.reset(0, 0)
    stack.reset(1, 1)
    view = stack.view([0, 1])
    with stack.use(view):
        output = carrier(ids(2)).last_hidden_state
        assert torch.equal(output, expected)
        view.add_gradients(output.float().sum())
    assert stack.flat_KP.dtype == stack.grad_KP.dtype == torch.float32
    assert stack.grad_KP.any()
