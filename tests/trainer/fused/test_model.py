"""A whole model by our own forward against the same by transformers': numbers, gradients, and weights never stale."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import families
import pytest
import tiny
import torch
from accelerate.state import AcceleratorState
from torch import Tensor

from kltune.trainer.bank import Bank
from kltune.trainer.encode import PaddedPrompts, pad_left
from kltune.trainer.fused.model import FusedModel
from kltune.trainer.logprobs import Completions, Logprobs, Scoring, hidden_states, score
from kltune.trainer.lora import AdapterStack, AdapterView, attach
from kltune.trainer.model import LoadedModel, freeze, place, with_own_forward
from kltune.trainer.optimizer import AdamWSettings

CPU = torch.device("cpu")
KNOWN = pytest.mark.parametrize("name", families.KNOWN)
MODES = pytest.mark.parametrize("mode", ["merged", "branch"])
PROMPTS = [[3, 4, 5], [6, 7, 8, 9, 10], [3, 4, 5], [11, 12]]
"""Two of each slot; one text occurs in both."""


def stack_of(model: LoadedModel, num_slots: int = 2, scale: float = 0.05) -> AdapterStack:
    stack = attach(model.body, num_slots, 4, 8)
    for slot in range(num_slots):
        stack.reset(slot, slot)
    generator = torch.Generator().manual_seed(1)
    stack.flat_KP.add_(scale * torch.randn(stack.flat_KP.shape, generator=generator))
    return stack


def completions(num_slots: int = 2) -> Completions:
    left = pad_left(PROMPTS[: 2 * num_slots], 0, CPU)
    prompts = PaddedPrompts(*(t.repeat_interleave(2, 0) for t in (left.ids, left.mask)))
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(2, 30, (num_slots, 4, 6), generator=generator)
    lengths = torch.tensor([[6, 3, 1, 4], [2, 2, 5, 1]])[:num_slots]
    mask = torch.arange(6) < lengths[..., None]
    return Completions(prompts, ids.where(mask, 0), mask)


def numbers(logprobs: Logprobs) -> list[Tensor]:
    return [logprobs.policy_KNT, logprobs.reference_KNT, logprobs.exact_kl_KNT]


def scored(
    model: LoadedModel, stack: AdapterStack, view: AdapterView, rows: Completions | None = None
) -> tuple[list[Tensor], Tensor]:
    """Numbers, and the gradient of a sum that takes every token and the whole distributions."""
    rows = rows or completions(view.num_slots)
    view.grad_KP.zero_()
    found = score(model, stack, view, rows, Scoring(0.8, True, frozenset({"exact"})))
    view.add_gradients((found.policy_KNT.sin() + found.exact_kl_KNT).sum())
    return [t.detach() for t in numbers(found)], view.grad_KP.clone()


def no_merging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FusedModel, "merges", property(lambda _self: False))


def relative(got: Tensor, wanted: Tensor) -> float:
    return float((got - wanted).norm() / wanted.norm())


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


def second_of(rows: Completions) -> Completions:
    prompts = PaddedPrompts(rows.prompts.ids[4:], rows.prompts.mask[4:])
    return Completions(prompts, rows.ids_KNT[1:], rows.mask_KNT[1:])


@dataclass
class Watched:
    """A bank whose first two slots have run, so that their weights may be cached."""

    bank: Bank
    rows: Completions

    def states(self, loaded: LoadedModel, slots: tuple[int, ...]) -> Tensor:
        stack: Any = self.bank.parts.stack
        view = stack.view(slots)
        rows = self.rows if len(slots) == 2 else second_of(self.rows)
        with torch.no_grad():
            return hidden_states(loaded, stack, view, rows).states_KNTD

    def check(self, *slots: int) -> None:
        """What the next forward gives is what a forward without a past gives."""
        loaded = self.bank.parts.loaded
        fresh = with_own_forward(loaded)
        assert torch.equal(self.states(loaded, slots), self.states(fresh, slots))


def watched(**trainer: object) -> Watched:
    bank = tiny.bank(3, own_forward=True, **trainer)
    for slot in range(3):
        bank.admit(slot, slot, tiny.trial(seed=slot, learning_rate=0.05), None)
    flat_KP = bank.parts.stack.flat_KP
    flat_KP.add_(0.05 * torch.randn(flat_KP.shape, generator=torch.Generator().manual_seed(2)))
    return Watched(bank, completions())


def optimizer_step(bank: Bank, _folder: Path) -> None:
    stack = bank.parts.stack
    stack.grad_KP.fill_(0.1)
    settings = AdamWSettings(0.1, 0.0, 1.0)
    bank.parts.optimizer.step(1, stack.flat_KP[1], stack.grad_KP[1], settings)


def reset(bank: Bank, _folder: Path) -> None:
    bank.parts.stack.reset(1, seed=77)


def clear(bank: Bank, _folder: Path) -> None:
    bank.parts.stack.clear(1)


def copy(bank: Bank, _folder: Path) -> None:
    bank.parts.stack.copy_row(0, 1)


def mix(bank: Bank, _folder: Path) -> None:
    bank.parts.stack.copy_row(2, 1, 0.5)


def write(bank: Bank, _folder: Path) -> None:
    bank.parts.stack.flat_KP[1] = 0.03


def add(bank: Bank, _folder: Path) -> None:
    bank.parts.stack.flat_KP.add_(0.01)


def train(bank: Bank, _folder: Path) -> None:
    bank.train_step()


def refill(bank: Bank, _folder: Path) -> None:
    bank.evict(1)
    bank.admit(1, 9, tiny.trial(seed=9), None)


def resume(bank: Bank, folder: Path) -> None:
    bank.save_checkpoint(2, folder / "last")
    bank.evict(1)
    bank.admit(1, 9, tiny.trial(seed=9), folder / "last")


CHANGES = [optimizer_step, reset, clear, copy, mix, write, add, train, refill, resume]
"""Every way in which weights of a slot change."""


@pytest.mark.parametrize("seen", [(1,), (0, 1), (2, 1)], ids=str)
@pytest.mark.parametrize("change", CHANGES)
def test_after_any_change_the_next_forward_runs_with_the_new_weights(
    change: Callable[[Bank, Path], None], seen: tuple[int, ...], tmp_path: Path
) -> None:
    # (2, 1) is no range in order: that view is a copy
    given = watched()
    loaded = given.bank.parts.loaded
    before = given.states(loaded, seen)
    assert torch.equal(given.states(loaded, seen), before)
    change(given.bank, tmp_path)
    assert not torch.equal(given.states(loaded, seen)[-1], before[-1])
    given.check(*seen)


def test_slots_in_turn_run_with_their_own_weights() -> None:
    given = watched()
    loaded = given.bank.parts.loaded
    for slots in ((0,), (1,), (0,), (2,), (0, 1), (1,), (2, 0), (1, 2), (0, 1), (2,)):
        given.check(*slots)
    assert not torch.equal(given.states(loaded, (0,)), given.states(loaded, (1,)))


def test_rows_of_critics_and_references_in_turn_run_with_their_own_weights() -> None:
    given = watched(algorithm="ppo", reference={"every": 1, "mixture": 0.5})
    rows = given.bank.parts.rows
    assert rows.total == 9
    loaded = given.bank.parts.loaded
    for slot in (0, 1, 0):
        for row in rows.of(slot):
            given.check(row)
    states = [given.states(loaded, (row,)) for row in range(9)]
    for i, one in enumerate(states):
        assert not any(torch.equal(one, other) for other in states[:i])


def test_two_banks_in_turn_on_one_model_run_with_their_own_weights() -> None:
    model = tiny.loaded(own_forward=True)
    rows, found = completions(), []
    for scale in (0.05, 0.1):
        stack = stack_of(model, scale=scale)
        with torch.no_grad():
            found.append(hidden_states(model, stack, stack.view((0, 1)), rows).states_KNTD)
            fresh = with_own_forward(model)
            again = hidden_states(fresh, stack, stack.view((0, 1)), rows).states_KNTD
        assert torch.equal(found[-1], again)
    assert not torch.equal(*found)


@pytest.mark.parametrize("saves_memory", [False, True])
@pytest.mark.parametrize("between", ["another slot", "new weights"])
def test_a_gradient_taken_after_the_weights_have_changed_is_never_silently_another(
    between: str, saves_memory: bool
) -> None:
    model = tiny.loaded(own_forward=True)
    assert model.fused is not None
    if saves_memory:
        model.fused.save_memory()
    stack, rows = stack_of(model), second_of(completions())
    view = stack.view((1,))
    _, wanted = scored(model, stack, view, rows)
    view.grad_KP.zero_()
    found = score(model, stack, view, rows, Scoring(0.8, True, frozenset({"exact"})))
    loss = (found.policy_KNT.sin() + found.exact_kl_KNT).sum()
    if between == "new weights":
        stack.reset(1, seed=5)
    with torch.no_grad():
        hidden_states(model, stack, stack.view((0 if between == "another slot" else 1,)), rows)
    try:
        view.add_gradients(loss)
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)  # noqa: PT017 - either is right
    else:
        assert relative(view.grad_KP, wanted) < 1e-6
