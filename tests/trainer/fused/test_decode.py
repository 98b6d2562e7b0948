"""Completions decoded by our own forward against those of transformers' cache, and against the trainer's own pass."""

from __future__ import annotations

from dataclasses import replace

import families
import pytest
import tiny
import torch
from torch import Tensor

from kltune.trainer.encode import PaddedPrompts, pad_left
from kltune.trainer.keyed import Purpose, uniforms
from kltune.trainer.logprobs import Completions, Scoring, score
from kltune.trainer.lora import AdapterStack, attach
from kltune.trainer.model import LoadedModel, with_own_forward
from kltune.trainer.rollout import Rollout, Sampling, rollout

CPU = torch.device("cpu")
KNOWN = pytest.mark.parametrize("name", families.KNOWN)
UNEQUAL = [[5, 9], [4, 8, 15, 16, 23, 7, 3, 11, 20], [7, 7, 7]]
EQUAL = [[5, 9, 2], [4, 8, 15], [7, 7, 7]]
MANY_STOPS = (1, 2, 3, 4)


def adapted(model: LoadedModel, num_slots: int) -> AdapterStack:
    stack = attach(model.body, num_slots, 4, 8)
    generator = torch.Generator().manual_seed(1)
    stack.flat_KP.copy_(0.15 * torch.randn(stack.flat_KP.shape, generator=generator))
    return stack


def draws(slots: int, rows: int, length: int) -> Tensor:
    keyed = [uniforms(5 + k, Purpose.ROLLOUT, 0, rows, length) for k in range(slots)]
    return torch.stack([torch.from_numpy(one) for one in keyed])


def drawn(
    model: LoadedModel, stack: AdapterStack, prompts: list[list[int]], sampling: Sampling
) -> Rollout:
    """Every slot is given all prompts."""
    slots = stack.flat_KP.shape[0]
    rows = len(prompts) * sampling.group_size
    u = draws(slots, rows, sampling.max_new_tokens)
    view = stack.view(range(slots))
    return rollout(model, pad_left(prompts * slots, 0, CPU), u, sampling, (stack, view))


def assert_same(got: Rollout, wanted: Rollout) -> None:
    for name in ("ids_KNT", "mask_KNT", "ended_KN"):
        assert torch.equal(getattr(got, name), getattr(wanted, name)), name
    assert torch.equal(got.prompts.ids, wanted.prompts.ids)
    torch.testing.assert_close(
        got.sampler_logprobs_KNT, wanted.sampler_logprobs_KNT, rtol=0, atol=3e-5
    )


@pytest.mark.parametrize("compact", [True, False])
@pytest.mark.parametrize("prompts", [UNEQUAL, EQUAL], ids=["unequal", "equal"])
@KNOWN
def test_tokens_and_logprobs_are_those_of_the_generic_path(
    name: str, prompts: list[list[int]], compact: bool
) -> None:
    model = replace(families.KNOWN[name](), stop_ids=MANY_STOPS)
    stack = adapted(model, 2)
    sampling = Sampling(4, 16, 0.8, compact)
    wanted = drawn(model, stack, prompts, sampling)
    got = drawn(with_own_forward(model), stack, prompts, sampling)
    lengths = wanted.lengths_KN.flatten().tolist()
    assert len(set(lengths)) > 4, f"the case must drop rows at many lengths ({lengths})"
    assert not torch.equal(wanted.ids_KNT[0], wanted.ids_KNT[1])
    assert_same(got, wanted)


@pytest.mark.parametrize("length", [1, 2, 7])
@pytest.mark.parametrize("group", [1, 2, 5])
def test_so_they_are_for_any_group_and_length(group: int, length: int) -> None:
    model = tiny.loaded()
    stack = adapted(model, 2)
    sampling = Sampling(group, length, 1.0, compact=True)
    wanted = drawn(model, stack, UNEQUAL, sampling)
    assert_same(drawn(with_own_forward(model), stack, UNEQUAL, sampling), wanted)


def test_prompts_of_one_text_side_by_side_are_completed_each_by_its_own_draws() -> None:
    # two groups that read one prompt, and one that comes back later
    prompts = [[5, 9], [5, 9], [7, 7, 7], [5, 9]]
    model = tiny.loaded()
    stack = adapted(model, 1)
    sampling = Sampling(2, 6, 1.0, compact=True)
    wanted = drawn(model, stack, prompts, sampling)
    got = drawn(with_own_forward(model), stack, prompts, sampling)
    assert_same(got, wanted)
    assert len({tuple(row) for row in got.ids_KNT[0].tolist()}) > 4


def test_without_adapters_the_base_is_sampled() -> None:
    model = tiny.loaded()
    own = with_own_forward(model)
    prompts, u = pad_left(UNEQUAL, 0, CPU), draws(1, 6, 8)
    sampling = Sampling(2, 8, 1.0, compact=True)
    wanted = rollout(model, prompts, u, sampling)
    assert_same(rollout(own, prompts, u, sampling), wanted)
    stack = adapted(own, 1)
    assert_same(rollout(own, prompts, u, sampling), wanted)
    assert not torch.equal(
        drawn(own, stack, UNEQUAL, sampling).ids_KNT[..., :4], wanted.ids_KNT[..., :4]
    )


@pytest.mark.parametrize("mode", ["merged", "branch"])
@KNOWN
def test_sampler_and_trainer_agree_on_every_token(
    name: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mode == "branch":
        kind = "kltune.trainer.fused.model.FusedModel.merges"
        monkeypatch.setattr(kind, property(lambda _self: False))
    model = replace(with_own_forward(families.KNOWN[name]()), stop_ids=MANY_STOPS)
    stack = adapted(model, 2)
    found = drawn(model, stack, UNEQUAL, Sampling(4, 16, 0.8, compact=True))
    with torch.no_grad():
        view = stack.view((0, 1))
        scored = score(model, stack, view, Completions.of(found), Scoring(0.8, only_valid=True))
    torch.testing.assert_close(found.sampler_logprobs_KNT, scored.policy_KNT, rtol=0, atol=1e-5)


def test_dropping_rows_changes_no_token() -> None:
    model = replace(tiny.loaded(own_forward=True), stop_ids=MANY_STOPS)
    stack = adapted(model, 1)
    compact, fixed = (
        drawn(model, stack, UNEQUAL, Sampling(4, 24, 1.0, compact=c)) for c in (True, False)
    )
    used = compact.ids_KNT.shape[-1]
    assert torch.equal(compact.ids_KNT, fixed.ids_KNT[..., :used])
    assert torch.equal(compact.mask_KNT, fixed.mask_KNT[..., :used])
    torch.testing.assert_close(
        compact.sampler_logprobs_KNT, fixed.sampler_logprobs_KNT[..., :used], rtol=0, atol=2e-5
    )


@pytest.mark.parametrize("prompts", [UNEQUAL, EQUAL], ids=["unequal", "equal"])
def test_a_decoder_goes_on_with_the_rows_that_it_is_told_in_that_order(
    prompts: list[list[int]],
) -> None:
    model = tiny.loaded(own_forward=True)
    assert model.fused is not None
    left = pad_left(prompts, 0, CPU)
    linears = model.fused.linears_by_slot(None, None)(0)
    tokens = torch.tensor([[4, 9, 6], [5, 3, 7], [8, 8, 2]])
    rows = PaddedPrompts(left.ids, left.mask)
    with torch.no_grad():
        decoder = model.fused.decoder(linears, rows, 4)
        start = decoder.states
        decoder.advance(tokens[:, 0])
        decoder.keep(torch.tensor([2, 0]))
        decoder.advance(tokens[[2, 0], 1])
        decoder.keep(torch.tensor([1]))
        decoder.advance(tokens[[0], 2])

        def expected(row: int, count: int) -> Tensor:
            text = torch.tensor([prompts[row] + tokens[row, :count].tolist()])
            return model.body(input_ids=text).last_hidden_state[0, -1]

        for row in range(3):
            torch.testing.assert_close(start[row], expected(row, 0), rtol=0, atol=2e-5)
        torch.testing.assert_close(decoder.states[0], expected(0, 3), rtol=0, atol=2e-5)
        assert decoder.states.shape[0] == 1
