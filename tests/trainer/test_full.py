"""Whole trainable copies of a model against a deepcopy of it."""

from __future__ import annotations

import copy
import hashlib

import pytest
import tiny
import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM

from kltune.errors import SpecError
from kltune.trainer.full import FullWeights
from kltune.trainer.optimizer import AdamWSettings, StackedAdamW

CPU = torch.device("cpu")
TIED = pytest.mark.parametrize("is_tied", [False, True])


def llama(is_tied: bool) -> LlamaForCausalLM:
    model = tiny.llama().eval().requires_grad_(False)
    if is_tied:
        model.config.tie_word_embeddings = True
        model.lm_head.weight = model.model.embed_tokens.weight
    return model


def started(model: nn.Module, num_rows: int = 2) -> FullWeights:
    weights = FullWeights(model, num_rows, CPU)
    for row in range(num_rows):
        weights.reset(row, seed=row)
    return weights


def ids() -> Tensor:
    return torch.randint(2, 30, (3, 7), generator=torch.Generator().manual_seed(1))


def logits(model: LlamaForCausalLM) -> Tensor:
    return model(input_ids=ids()).logits


def loss_of(logits: Tensor) -> Tensor:
    weights = torch.randn(logits.shape, generator=torch.Generator().manual_seed(2))
    return (logits.log_softmax(-1) * weights).sum()


def digest(model: nn.Module) -> str:
    found = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        found.update(name.encode() + tensor.numpy().tobytes())
    return found.hexdigest()


def disturbed(weights: FullWeights, row: int) -> None:
    noise = torch.randn(weights.num_parameters, generator=torch.Generator().manual_seed(row))
    weights.flat_KP[row] += 0.05 * noise


def written_out(model: LlamaForCausalLM, weights: FullWeights, row: int) -> LlamaForCausalLM:
    """A deepcopy of the model that holds the row's weights."""
    alone = copy.deepcopy(model).requires_grad_(True)
    with torch.no_grad():
        for name, value in weights.tensors(row).items():
            alone.get_parameter(name).copy_(value)
    return alone


@TIED
def test_a_fresh_row_is_the_base_to_the_last_bit(is_tied: bool) -> None:
    model = llama(is_tied)
    expected = logits(model)
    weights = started(model)
    with weights.use(weights.view([1])):
        assert torch.equal(logits(model), expected)
    assert torch.equal(weights.flat_KP[0], weights.flat_KP[1]), "the seed must change nothing"


@TIED
def test_outputs_and_gradients_equal_those_of_a_deepcopy_with_the_rows_weights(
    is_tied: bool,
) -> None:
    model = llama(is_tied)
    weights = started(model)
    for row in (0, 1):
        disturbed(weights, row)
    for row in (0, 1):
        alone, view = written_out(model, weights, row), weights.view([row])
        expected = logits(alone)
        with weights.use(view):
            got = logits(model)
            assert torch.equal(got, expected)
            view.add_gradients(loss_of(got))
        loss_of(expected).backward()
        grads = [p.grad for p in alone.parameters() if p.grad is not None]
        assert len(grads) == len(list(alone.parameters()))
        flat = torch.cat([g.flatten() for g in grads])
        assert flat.numel() == weights.num_parameters
        torch.testing.assert_close(weights.grad_KP[row], flat, rtol=1e-5, atol=1e-5)
        assert float(flat.norm()) > 1


@TIED
def test_the_base_is_untouched_by_training_while_the_policy_moves(is_tied: bool) -> None:
    # field case A14
    model = llama(is_tied)
    before, expected = digest(model), logits(model)
    weights = started(model, 1)
    optimizer = StackedAdamW(1, weights.num_parameters, CPU)
    view = weights.view([0])
    moved: list[float] = []
    for _ in range(5):
        view.grad_KP.zero_()
        with weights.use(view):
            view.add_gradients(loss_of(logits(model)))
        optimizer.step(0, weights.flat_KP[0], weights.grad_KP[0], AdamWSettings(1e-2, 0.01, 1.0))
        with torch.no_grad(), weights.use(view):
            moved.append(float((logits(model) - expected).abs().max()))
        with weights.use(None):
            assert torch.equal(logits(model), expected)
    assert digest(model) == before
    assert moved[0] > 0
    assert moved[4] > moved[0]


@TIED
def test_no_row_shares_storage_with_the_base(is_tied: bool) -> None:
    model = llama(is_tied)
    weights = started(model)
    base = {p.untyped_storage().data_ptr() for p in model.parameters()}
    with weights.use(weights.view([0])):
        policy = {p.untyped_storage().data_ptr() for p in model.parameters()}
    assert policy == {weights.flat_KP.untyped_storage().data_ptr()}
    assert not base & policy


def test_tied_embeddings_stay_one_weight() -> None:
    # field case A14
    model = llama(True)
    weights = started(model)
    assert weights.num_parameters == sum(p.numel() for p in model.parameters())
    assert "lm_head.weight" not in weights.tensors(0)
    with weights.use(weights.view([0])):
        assert model.lm_head.weight is model.model.embed_tokens.weight
        assert model.lm_head.weight.requires_grad
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert not model.lm_head.weight.requires_grad
    untied = llama(False)
    assert started(untied).num_parameters == weights.num_parameters + 30 * 32


@TIED
def test_rows_nest(is_tied: bool) -> None:
    model = llama(is_tied)
    expected = logits(model)
    weights = started(model)
    disturbed(weights, 0)
    with weights.use(weights.view([0])):
        first = logits(model)
        with weights.use(weights.view([1])):
            assert torch.equal(logits(model), expected)
        with weights.use(None):
            assert torch.equal(logits(model), expected)
        assert torch.equal(logits(model), first)
        assert not torch.equal(first, expected)


@TIED
def test_the_base_is_back_after_an_error(is_tied: bool) -> None:
    model = llama(is_tied)
    expected, names = logits(model), {n: id(p) for n, p in model.named_parameters()}
    weights = started(model)
    disturbed(weights, 0)
    with pytest.raises(ZeroDivisionError), weights.use(weights.view([0])):
        raise ZeroDivisionError
    assert torch.equal(logits(model), expected)
    assert {n: id(p) for n, p in model.named_parameters()} == names
    assert weights.active is None


def test_weights_that_the_loss_does_not_reach_get_no_gradient() -> None:
    model = llama(False)
    weights = started(model)
    view = weights.view([1])
    with weights.use(view):
        view.add_gradients(model.model(input_ids=ids()).last_hidden_state.square().sum())
    named = dict(zip(weights.tensors(1), weights.cut(weights.grad_KP[1]), strict=True))
    assert not named["lm_head.weight"].any()
    assert all(g.any() for name, g in named.items() if name != "lm_head.weight")
    assert not weights.grad_KP[0].any()


def test_gradients_add_up_and_collect_changes_nothing() -> None:
    model = llama(False)
    weights = started(model)
    view = weights.view([0])
    for _ in range(2):
        with weights.use(view):
            view.add_gradients(loss_of(logits(model)))
    twice = weights.grad_KP.clone()
    weights.collect(view, [0])
    assert torch.equal(weights.grad_KP, twice)
    view.grad_KP.zero_()
    with weights.use(view):
        view.add_gradients(loss_of(logits(model)))
    torch.testing.assert_close(twice[0], 2 * weights.grad_KP[0])


def test_a_row_is_copied_mixed_in_and_cleared() -> None:
    weights = started(llama(False))
    disturbed(weights, 0)
    first, base = weights.flat_KP.clone()
    weights.copy_row(0, 1, mixture=0.1)
    torch.testing.assert_close(weights.flat_KP[1], 0.1 * first + 0.9 * base)
    weights.copy_row(0, 1)
    assert torch.equal(weights.flat_KP[1], first)
    weights.grad_KP.fill_(1.0)
    weights.clear(1)
    assert not weights.flat_KP[1].any()
    assert not weights.grad_KP[1].any()
    assert torch.equal(weights.flat_KP[0], first)


def test_a_view_has_exactly_one_row_and_is_made_once() -> None:
    weights = started(llama(False))
    assert weights.view([1]) is weights.view((1,))
    for rows in ([], [0, 1]):
        with pytest.raises(ValueError, match="one row of weights at a time"):
            weights.view(rows)


def test_a_bfloat16_base_is_refused() -> None:
    with pytest.raises(SpecError, match=r"model\.dtype"):
        FullWeights(llama(False).bfloat16(), 1, CPU)


def test_the_heads_weight_is_the_rows_while_it_is_used() -> None:
    model = llama(False)
    weights = started(model)
    view = weights.view([0])
    with weights.use(view):
        head = model.get_output_embeddings().weight
        hidden = model.model(input_ids=ids()).last_hidden_state
    assert any(head is leaf for leaf in view.leaves)
    view.add_gradients((hidden @ head.T).sum())
    assert weights.grad_KP[0].any()


def test_two_losses_of_one_graph_add_up() -> None:
    model = llama(False)
    weights = started(model)
    view = weights.view([0])
    with weights.use(view):
        hidden = model.model(input_ids=ids()).last_hidden_state
        one, two = loss_of(hidden), hidden.square().sum()
    view.add_gradients(one, retain_graph=True)
    view.add_gradients(two)
    apart = weights.grad_KP[0].clone()
    view.grad_KP.zero_()
    with weights.use(view):
        hidden = model.model(input_ids=ids()).last_hidden_state
        view.add_gradients(loss_of(hidden) + hidden.square().sum())
    torch.testing.assert_close(apart, weights.grad_KP[0], rtol=1e-4, atol=1e-4)


def test_one_module_that_holds_a_weight_under_two_names_gets_one_leaf_for_both() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Parameter(torch.ones(3), requires_grad=False)
            self.second = self.first

    model = Twice()
    weights = started(model, 1)
    with weights.use(weights.view([0])):
        assert model.first is model.second
        assert model.first.requires_grad
    assert weights.num_parameters == 3
