"""Chunked log-probs and exact KL against a plain log-softmax over full logits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import families
import pytest
import tiny
import torch
from accelerate import Accelerator
from torch import Tensor

from kltune.trainer import head as module
from kltune.trainer.encode import pad_left
from kltune.trainer.logprobs import Completions, Logprobs, Scoring, score
from kltune.trainer.lora import AdapterStack, AdapterView, attach
from kltune.trainer.model import LoadedModel, freeze
from kltune.trainer.rollout import Rollout

CPU = torch.device("cpu")
PROMPTS = [[5, 9], [4, 8, 15, 16, 23, 7, 3]]
COMPACT, FIXED = Scoring(1.0, only_valid=True), Scoring(1.0, only_valid=False)


def with_adapters(
    num_slots: int = 2, scale: float = 0.15
) -> tuple[LoadedModel, AdapterStack, AdapterView]:
    model = tiny.loaded()
    stack = attach(model.body, num_slots, 4, 8)
    stack.flat_KP.copy_(
        scale * torch.randn(stack.flat_KP.shape, generator=torch.Generator().manual_seed(1))
    )
    return model, stack, stack.view(list(range(num_slots)))


def completions(num_slots: int = 2) -> Completions:
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(2, 30, (num_slots, 2, 5), generator=generator)
    lengths = torch.tensor([[5, 2], [3, 4]])[:num_slots]
    mask = torch.arange(5) < lengths[..., None]
    return Completions(pad_left(PROMPTS * num_slots, 0, CPU), ids.where(mask, 0), mask)


def plain(stack: AdapterStack, slot: int | None, text: list[int]) -> Tensor:
    """Logits of one unpadded text, the slot's weights written out (None: the reference): ``[length, V]``."""
    merged = tiny.llama().eval()
    with torch.no_grad():
        if slot is not None:
            named = stack.tensors(slot)
            for target in stack.targets:
                a, b = (named[f"{target.name}.lora_{kind}.weight"] for kind in "AB")
                merged.model.get_submodule(target.name).weight.add_(stack.scale * b @ a)
        return merged(input_ids=torch.tensor([text])).logits[0]


@pytest.mark.parametrize("scoring", [COMPACT, FIXED, Scoring(0.7, only_valid=True)])
def test_every_output_equals_a_plain_log_softmax_over_full_logits(scoring: Scoring) -> None:
    model, stack, view = with_adapters()
    rows = completions()
    with torch.no_grad():
        got = score(model, stack, view, rows, scoring)
    for slot, row in ((0, 0), (0, 1), (1, 0), (1, 1)):
        ids = rows.ids_KNT[slot, row][rows.mask_KNT[slot, row]]
        text, start = PROMPTS[row] + ids.tolist(), len(PROMPTS[row]) - 1
        policy, reference = (
            (plain(stack, which, text)[start:-1].double() / scoring.temperature).log_softmax(-1)
            for which in (slot, None)
        )
        exact = (policy.exp() * (policy - reference)).sum(-1)
        assert float(exact.min()) > 1e-3, "the case must have KL"
        for name, expected in (
            ("policy_KNT", policy.gather(1, ids[:, None])[:, 0]),
            ("reference_KNT", reference.gather(1, ids[:, None])[:, 0]),
            ("exact_kl_KNT", exact),
            ("forward_kl_KNT", (reference.exp() * (reference - policy)).sum(-1)),
            ("entropy_KNT", -(policy.exp() * policy).sum(-1)),
        ):
            values = getattr(got, name)[slot, row, : len(ids)].double()
            torch.testing.assert_close(values, expected, rtol=1e-5, atol=2e-5)


def names() -> list[str]:
    return [name for name in Logprobs.__dataclass_fields__ if "top_k" not in name]


def gradient(
    model: LoadedModel, stack: AdapterStack, view: AdapterView, scoring: Scoring
) -> Tensor:
    view.grad_KP.zero_()
    rows = completions()
    weights = torch.randn(rows.mask_KNT.shape, generator=torch.Generator().manual_seed(4))
    view.add_gradients((score(model, stack, view, rows, scoring).policy_KNT * weights).sum())
    return view.grad_KP.clone()


@pytest.mark.parametrize("elements", [1, 90, 200])
@pytest.mark.parametrize("scoring", [COMPACT, FIXED])
def test_chunks_change_neither_values_nor_gradients(
    monkeypatch: pytest.MonkeyPatch, elements: int, scoring: Scoring
) -> None:
    model, stack, view = with_adapters()
    whole, whole_grad = (
        score(model, stack, view, completions(), scoring),
        gradient(model, stack, view, scoring),
    )
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", elements)
    cut, cut_grad = (
        score(model, stack, view, completions(), scoring),
        gradient(model, stack, view, scoring),
    )
    for name in names():
        torch.testing.assert_close(getattr(cut, name), getattr(whole, name), rtol=1e-6, atol=2e-6)
    assert float(whole_grad.norm()) > 0.1
    torch.testing.assert_close(cut_grad, whole_grad, rtol=1e-5, atol=3e-5)


def test_fixed_shapes_and_only_valid_tokens_give_the_same_numbers_and_gradients() -> None:
    model, stack, view = with_adapters()
    compact, fixed = (score(model, stack, view, completions(), s) for s in (COMPACT, FIXED))
    for name in names():
        torch.testing.assert_close(
            getattr(compact, name), getattr(fixed, name), rtol=1e-6, atol=2e-6
        )
    torch.testing.assert_close(
        gradient(model, stack, view, COMPACT),
        gradient(model, stack, view, FIXED),
        rtol=1e-5,
        atol=1e-5,
    )


@pytest.mark.parametrize("scoring", [COMPACT, FIXED])
def test_masked_positions_carry_zero_and_what_stands_there_does_not_matter(
    scoring: Scoring,
) -> None:
    model, stack, view = with_adapters()
    rows = completions()
    clean = score(model, stack, view, rows, scoring)
    other = replace(rows, ids_KNT=rows.ids_KNT.where(rows.mask_KNT, 17))
    for name in names():
        values = getattr(clean, name).detach()
        assert not values[~rows.mask_KNT].any(), name
        assert torch.equal(
            getattr(score(model, stack, view, other, scoring), name).detach(), values
        ), name


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("scoring", [COMPACT, FIXED])
def test_a_non_finite_number_at_a_masked_position_stays_there(scoring: Scoring, bad: float) -> None:
    model, stack, view = with_adapters()
    rows = completions()
    clean = score(model, stack, view, rows, scoring)
    # the hidden state at column L - 1 + t predicts completion token t
    first = rows.prompts.ids.shape[1] - 1
    keep = torch.ones(4, first + 5, 1).bool()
    keep[:, first:] = rows.mask_KNT.flatten(0, 1)[..., None]

    def poison(_module: object, _inputs: object, output: Any) -> None:
        output.last_hidden_state = output.last_hidden_state.where(keep, bad)

    hook = model.body.register_forward_hook(poison)
    got = score(model, stack, view, rows, scoring)
    view.grad_KP.zero_()
    view.add_gradients(got.policy_KNT.sum())
    hook.remove()
    for name in names():
        assert torch.equal(getattr(got, name).detach(), getattr(clean, name).detach()), name
    assert torch.isfinite(view.grad_KP).all()


def test_a_broken_slot_shows_in_every_number_and_in_no_other_slot() -> None:
    model, stack, view = with_adapters()
    clean = score(model, stack, view, completions(), FIXED)
    stack.flat_KP[0] = torch.nan
    got = score(model, stack, view, completions(), FIXED)
    mask = completions().mask_KNT
    for name in ("policy_KNT", "exact_kl_KNT", "entropy_KNT"):
        assert getattr(got, name)[0][mask[0]].isnan().all(), name
        assert torch.equal(getattr(got, name)[1], getattr(clean, name)[1]), name


def test_the_gradient_flows_through_the_policy_alone() -> None:
    model, stack, view = with_adapters()
    got = score(model, stack, view, completions(), COMPACT)
    assert got.policy_KNT.requires_grad
    for name in names()[1:]:
        assert not getattr(got, name).requires_grad, name
    asked = replace(COMPACT, gradients=frozenset({"exact", "top_k"}), top_k=3)
    got = score(model, stack, view, completions(), asked)
    assert got.top_k_KNT is not None
    carrying = {n for n in Logprobs.__dataclass_fields__ if getattr(got, n).requires_grad}
    assert carrying == {"policy_KNT", "exact_kl_KNT", "top_k_KNT"}
    with torch.no_grad():
        assert not score(model, stack, view, completions(), COMPACT).policy_KNT.requires_grad


def fresh(model: LoadedModel) -> tuple[AdapterStack, AdapterView]:
    stack = attach(model.body, 2, 4, 8)
    for slot in range(2):
        stack.reset(slot, slot)
    return stack, stack.view([0, 1])


def bfloat16() -> LoadedModel:
    return freeze(tiny.llama().bfloat16(), tiny.tokenizer(), Accelerator(cpu=True))


@pytest.mark.parametrize("build", [tiny.loaded, bfloat16, families.opt])
@pytest.mark.parametrize("scoring", [COMPACT, FIXED])
@pytest.mark.parametrize("has_grad", [False, True])
def test_the_kl_of_step_0_is_exactly_zero(build: object, scoring: Scoring, has_grad: bool) -> None:
    # field case A46
    model = build()  # pyright: ignore[reportCallIssue]
    stack, view = fresh(model)
    with torch.set_grad_enabled(has_grad):
        got = score(model, stack, view, completions(), scoring)
    assert got.policy_KNT.requires_grad is has_grad
    assert (got.exact_kl_KNT == 0).all()
    assert torch.equal(got.policy_KNT.detach(), got.reference_KNT)
    assert got.policy_KNT.dtype == torch.float32
    assert float(got.entropy_KNT.max()) > 0.1


def test_dropout_is_off_in_every_pass_and_stays_in_the_config() -> None:
    # field case A10; GPT-2 itself: test_field_cases
    model = families.opt()
    stack, view = fresh(model)
    once, again = (score(model, stack, view, completions(), COMPACT) for _ in range(2))
    assert torch.equal(once.policy_KNT, again.policy_KNT)
    assert torch.equal(once.reference_KNT, again.reference_KNT)
    assert (model.model.config.dropout, model.model.config.attention_dropout) == (0.1, 0.1)


def test_completions_of_some_rows_are_those_rows_of_every_slot() -> None:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(2, 30, (2, 4, 3), generator=generator)
    prompts = pad_left([[i] * (1 + i % 3) for i in range(2, 10)], 0, CPU)
    drawn = Rollout(prompts, ids, ids > 5, torch.zeros(2, 4, 3), torch.ones(2, 4).bool())
    cut = Completions.of(drawn).take(torch.tensor([[1, 2], [1, 2]]))
    assert torch.equal(cut.ids_KNT, ids[:, 1:3])
    assert torch.equal(cut.mask_KNT, (ids > 5)[:, 1:3])
    assert torch.equal(cut.prompts.ids, prompts.ids[[1, 2, 5, 6]])
    assert torch.equal(cut.prompts.mask, prompts.mask[[1, 2, 5, 6]])
    assert torch.equal(Completions.of(drawn).prompts.ids, prompts.ids)
    mixed = Completions.of(drawn).take(torch.tensor([[3, 0], [2, 2]]))
    assert torch.equal(mixed.ids_KNT, torch.stack([ids[0, [3, 0]], ids[1, [2, 2]]]))
    assert torch.equal(mixed.prompts.ids, prompts.ids[[3, 0, 6, 6]])
