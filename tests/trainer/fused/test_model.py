"""A whole model by our own forward against the same by transformers': numbers, gradients, and weights never stale."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import families
import pytest
import tiny
import torch
from accelerate.state import AcceleratorState

from kltune.trainer.bank import Bank
from kltune.trainer.encode import PaddedPrompts
from kltune.trainer.fused.model import FusedModel
from kltune.trainer.logprobs import Completions, Scoring, hidden_states, score
from kltune.trainer.lora import attach
from kltune.trainer.model import LoadedModel, freeze, place, with_own_forward
from tests.scored_rows import (
    completions,
    relative,
    scored,
    second_of,
    stack_of,
)

KNOWN = pytest.mark.parametrize("name", families.KNOWN)
MODES = pytest.mark.parametrize("mode", ["merged", "branch"])


def no_merging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FusedModel, "merges", property(lambda _self: False))


@MODES
@KNOWN
def test_numbers_and_gradients_are_those_of_the_generic_path(
    name: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mode == "branch":
        no_merging(monkeypatch)
    model = families.KNOWN[name]()
    own = with_own_forward(model)
    assert own.fused is not None
    stack = stack_of(model)
    view = stack.view((0, 1))
    (wanted, gradient), (got, own_gradient) = (scored(m, stack, view) for m in (model, own))
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=3e-5)
    assert float(wanted[2].abs().max()) > 0.1, "the adapters must do something"
    for slot in range(2):
        assert relative(own_gradient[slot], gradient[slot]) < 1e-5


@MODES
def test_one_slot_alone_or_two_at_once_are_the_same_bits(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # both graphs are held until the one gradient
    if mode == "branch":
        no_merging(monkeypatch)
    model = tiny.loaded(own_forward=True)
    stack, rows = stack_of(model), completions()
    with torch.no_grad():
        together = hidden_states(model, stack, stack.view((0, 1)), rows).states_KNTD
    _, gradient = scored(model, stack, stack.view((0, 1)))
    gradient = gradient.clone()
    for slot in range(2):
        one = Completions(
            PaddedPrompts(
                *(t[4 * slot : 4 * slot + 4] for t in (rows.prompts.ids, rows.prompts.mask))
            ),
            rows.ids_KNT[slot : slot + 1],
            rows.mask_KNT[slot : slot + 1],
        )
        with torch.no_grad():
            alone = hidden_states(model, stack, stack.view((slot,)), one).states_KNTD
        assert torch.equal(alone[0], together[slot])
        _, own = scored(model, stack, stack.view((slot,)), one)
        assert relative(gradient[slot], own[0]) < 1e-6


@pytest.fixture
def bf16() -> Iterator[Callable[[], LoadedModel]]:
    """Models whose arithmetic is bfloat16 by accelerate's autocast."""
    exact = tiny.loaded().accelerator
    assert exact.mixed_precision == "no"
    AcceleratorState._reset_state(reset_partial_state=True)
    yield lambda: freeze(tiny.llama(), tiny.tokenizer(), place("cpu", "bf16"))
    AcceleratorState._reset_state(reset_partial_state=True)


def bf16_base() -> LoadedModel:
    """Weights that are bfloat16 themselves."""
    return freeze(tiny.llama().bfloat16(), tiny.tokenizer(), place("cpu", "fp32"))


def check_bf16(make: Callable[[], LoadedModel]) -> None:
    exact = tiny.llama()
    if make is bf16_base:
        exact = exact.bfloat16().float()
    errors = []
    for own in (True, False):
        model = with_own_forward(make()) if own else make()
        assert (model.fused is not None) == own
        stack = stack_of(model)
        got, found = scored(model, stack, stack.view((0, 1)))
        wide = replace(model, body=exact.model, head=exact.lm_head, fused=None)
        wide = replace(wide, accelerator=NoAutocast(model.device))  # pyright: ignore[reportArgumentType]
        own_stack = stack_of(wide)
        wanted, gradient = scored(wide, own_stack, own_stack.view((0, 1)))
        pairs = zip([*got, found], [*wanted, gradient], strict=True)
        errors.append([relative(a, b) for a, b in pairs])
    ours, theirs = errors
    assert all(a < 1.5 * b + 1e-3 for a, b in zip(ours, theirs, strict=True)), errors
    assert max(ours) < 0.2, errors


@dataclass
class NoAutocast:
    """An accelerator of float32, beside one of bfloat16: accelerate keeps one per process."""

    device: torch.device
    mixed_precision: str = "no"

    def autocast(self) -> AbstractContextManager[None]:
        return nullcontext()


def test_bfloat16_arithmetic_is_as_near_to_the_truth_as_transformers(
    bf16: Callable[[], LoadedModel],
) -> None:
    check_bf16(bf16)


def test_so_it_is_with_a_bfloat16_base() -> None:
    check_bf16(bf16_base)


def check_small_adapters(model: LoadedModel) -> None:
    """In merged weights of bfloat16 they would be rounded away; and fresh ones are the base to the last bit."""
    stack = attach(model.body, 2, 4, 8)
    for slot in range(2):
        stack.reset(slot, slot)
    with torch.no_grad():
        fresh = score(model, stack, stack.view((0, 1)), completions(), Scoring(1.0, True))
        assert not fresh.exact_kl_KNT.any()
        stack.flat_KP.add_(
            1e-3 * torch.randn(stack.flat_KP.shape, generator=torch.Generator().manual_seed(1))
        )
        found = score(model, stack, stack.view((0, 1)), completions(), Scoring(1.0, True))
    assert found.exact_kl_KNT.any()


def test_bfloat16_arithmetic_keeps_small_adapters(bf16: Callable[[], LoadedModel]) -> None:
    check_small_adapters(with_own_forward(bf16()))


def test_a_bfloat16_base_keeps_small_adapters() -> None:
    check_small_adapters(with_own_forward(bf16_base()))


# which models


@pytest.mark.parametrize(
    "make",
    [
        families.opt,
        families.mistral,
        lambda: families.llama(hidden_act="gelu"),
        lambda: families.qwen2(use_sliding_window=True, sliding_window=4, max_window_layers=1),
    ],
    ids=["opt", "sliding-window", "gelu", "sliding-window-in-some-layers"],
)
def test_any_other_model_runs_by_its_own_forward(make: Callable[[], LoadedModel]) -> None:
    plain, model = make(), with_own_forward(make())
    assert model.fused is None
    bank = Bank(model, tiny.task_data(model), tiny.settings(), tiny.MODEL, 1)
    assert not bank.parts.slot_by_slot
    bank.admit(0, 0, tiny.trial(), None)
    other = Bank(plain, tiny.task_data(plain), tiny.settings(), tiny.MODEL, 1)
    other.admit(0, 0, tiny.trial(), None)
    (got,), (wanted,) = bank.train_step(), other.train_step()
    assert got.is_finite
    assert got.values["train/loss"] == wanted.values["train/loss"]


def scaled_output(model: LoadedModel) -> None:
    layer: Any = model.body.get_submodule("layers.0")
    layer.register_forward_hook(lambda _m, _a, out: 1.05 * out)


def other_softmax(model: LoadedModel) -> None:
    attention: Any = model.body.get_submodule("layers.0.self_attn")
    attention.scaling *= 1.5


def other_angles(model: LoadedModel) -> None:
    body: Any = model.body
    forward = body.rotary_emb.forward
    body.rotary_emb.forward = lambda x, position_ids: forward(x, position_ids)
    turn: Any = body.get_submodule("layers.0.self_attn")
    inner = turn.forward

    def swapped(*args: Any, **kwargs: Any) -> Any:
        cos, sin = kwargs["position_embeddings"]
        return inner(*args, **{**kwargs, "position_embeddings": (cos, -sin)})

    turn.forward = swapped


def not_finite(model: LoadedModel) -> None:
    with torch.no_grad():
        model.body.get_parameter("norm.weight")[3] = torch.nan


def other_norm(model: LoadedModel) -> None:
    norm: Any = model.body.get_submodule("layers.1.input_layernorm")
    norm.variance_epsilon = 0.5


@pytest.mark.parametrize(
    "change", [scaled_output, other_softmax, other_angles, not_finite, other_norm]
)
def test_a_model_of_a_known_name_with_other_numbers_is_not_taken(
    change: Callable[[LoadedModel], None],
) -> None:
    model = families.llama()
    assert with_own_forward(model).fused is not None
    change(model)
    assert with_own_forward(model).fused is None


# merged weights


def test_a_fresh_adapter_changes_not_one_bit() -> None:
    for name, make in families.KNOWN.items():
        model = with_own_forward(make())
        stack = attach(model.body, 2, 4, 8)
        for slot in range(2):
            stack.reset(slot, slot)
        rows = completions()
        with torch.no_grad():
            base = hidden_states(model, stack, None, rows).states_KNTD
            policy = hidden_states(model, stack, stack.view((0, 1)), rows).states_KNTD
            one = hidden_states(model, stack, stack.view((1,)), second_of(rows)).states_KNTD
        assert torch.equal(policy, base), name
        assert torch.equal(one[0], base[1]), name
        found = score(model, stack, stack.view((0, 1)), rows, Scoring(1.0, True))
        assert not found.exact_kl_KNT.any(), name
