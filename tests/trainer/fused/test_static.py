"""Decoding at fixed shapes, without graphs: the same completions as slot by slot, from buffers that are used again."""

from __future__ import annotations

from dataclasses import replace

import families
import pytest
import tiny
import torch
from torch import Tensor

from kltune.trainer.encode import pad_left
from kltune.trainer.fused.static import BUCKET, ENDED_EVERY
from kltune.trainer.keyed import Purpose, uniforms
from kltune.trainer.logprobs import Completions, Scoring, score
from kltune.trainer.lora import AdapterStack, attach
from kltune.trainer.model import LoadedModel, with_own_forward
from kltune.trainer.rollout import Rollout, Sampling, rollout

CPU = torch.device("cpu")
FIRST = [[5, 9], [4, 8, 15, 16, 23, 7, 3, 11, 20], [7, 7, 7]]
SECOND = [[3], [9, 9, 4, 2], [6, 5]]
MANY_STOPS = (1, 2, 3, 4)


def adapted(model: LoadedModel, num_slots: int = 3) -> AdapterStack:
    stack = attach(model.body, num_slots, 4, 8)
    generator = torch.Generator().manual_seed(1)
    stack.flat_KP.copy_(0.15 * torch.randn(stack.flat_KP.shape, generator=generator))
    return stack


def drawn(
    model: LoadedModel,
    stack: AdapterStack,
    prompts: list[list[int]],
    *,
    length: int = 20,
    compact: bool = False,
    seed: int = 0,
) -> Rollout:
    """As wide as the longest of both lists, so that both have one shape."""
    slots, rows = stack.flat_KP.shape[0], 2 * len(prompts)
    keyed = [uniforms(seed + k, Purpose.ROLLOUT, 0, rows, length) for k in range(slots)]
    u: Tensor = torch.stack([torch.from_numpy(one) for one in keyed])
    padded = pad_left(prompts * slots, 0, CPU, width=9)
    sampling = Sampling(2, length, 0.8, compact)
    return rollout(model, padded, u, sampling, (stack, stack.view(range(slots))))


def assert_same(got: Rollout, wanted: Rollout, may_part: int = 0) -> None:
    """``wanted`` is trimmed to its longest completion.

    Shapes differ, so sums are added in other orders and last bits differ, by processor: now and then a draw
    that lies on the border of two tokens falls on the other side. So many completions may part there;
    until then they must be the same.
    """
    used = wanted.ids_KNT.shape[-1]
    ids_KNT, mask_KNT = got.ids_KNT[..., :used], got.mask_KNT[..., :used]
    is_same_KNT = (ids_KNT == wanted.ids_KNT) & (mask_KNT == wanted.mask_KNT)
    is_same_KN = is_same_KNT.all(-1)
    assert int((~is_same_KN).sum()) <= may_part
    assert not got.mask_KNT[is_same_KN][:, used:].any()
    assert torch.equal(got.ended_KN[is_same_KN], wanted.ended_KN[is_same_KN])
    until_KNT = is_same_KNT.long().cumprod(-1).bool()
    torch.testing.assert_close(
        got.sampler_logprobs_KNT[..., :used][until_KNT],
        wanted.sampler_logprobs_KNT[until_KNT],
        rtol=0,
        atol=2e-5,
    )
    assert not got.sampler_logprobs_KNT[~got.mask_KNT].any()


def own(name: str, stops: tuple[int, ...] = MANY_STOPS) -> LoadedModel:
    return replace(with_own_forward(families.KNOWN[name]()), stop_ids=stops)


@pytest.mark.parametrize("name", families.KNOWN)
def test_completions_are_those_of_slot_by_slot(name: str) -> None:
    model = own(name)
    stack = adapted(model)
    wanted = drawn(model, stack, FIRST, compact=True)
    assert len(set(wanted.lengths_KN.flatten().tolist())) > 4
    got = drawn(model, stack, FIRST)
    assert got.ids_KNT.shape == (3, 6, 20)
    assert_same(got, wanted)


@pytest.mark.parametrize("length", [1, 2, ENDED_EVERY, ENDED_EVERY + 1, BUCKET - 9, BUCKET + 1])
def test_so_they_are_at_any_length_and_across_the_steps_of_what_is_looked_at(length: int) -> None:
    model = own("llama", stops=(1,))
    stack = adapted(model, 2)
    wanted = drawn(model, stack, FIRST, length=length, compact=True)
    assert_same(drawn(model, stack, FIRST, length=length), wanted, may_part=length // 50)


def test_buffers_that_were_used_hold_nothing_over() -> None:
    # other prompts, other weights and other draws between two that are the same
    model = own("llama")
    stack = adapted(model)
    first = drawn(model, stack, FIRST)
    kept = stack.flat_KP.clone()
    stack.flat_KP.mul_(-0.5)
    other = drawn(model, stack, SECOND, seed=40)
    assert_same(other, drawn(model, stack, SECOND, seed=40, compact=True))
    stack.flat_KP.copy_(kept)
    again = drawn(model, stack, FIRST)
    for name in ("ids_KNT", "mask_KNT", "ended_KN", "sampler_logprobs_KNT"):
        assert torch.equal(getattr(again, name), getattr(first, name)), name


def test_what_is_given_back_is_no_view_of_a_buffer() -> None:
    model = own("llama")
    stack = adapted(model)
    first = drawn(model, stack, FIRST)
    ids = first.ids_KNT.clone()
    drawn(model, stack, SECOND, seed=40)
    assert torch.equal(first.ids_KNT, ids)


def test_a_slot_that_was_not_finite_leaves_nothing_to_the_next_trial_in_it() -> None:
    model = own("llama")
    stack = adapted(model)
    first = drawn(model, stack, FIRST)
    kept = stack.flat_KP.clone()
    stack.flat_KP[1] = torch.nan
    broken = drawn(model, stack, FIRST)
    assert not torch.isfinite(broken.sampler_logprobs_KNT[1]).all()
    for slot in (0, 2):
        assert torch.equal(broken.ids_KNT[slot], first.ids_KNT[slot])
        assert torch.equal(broken.sampler_logprobs_KNT[slot], first.sampler_logprobs_KNT[slot])
    stack.flat_KP.copy_(kept)
    again = drawn(model, stack, SECOND)
    assert torch.isfinite(again.sampler_logprobs_KNT).all()
    assert_same(again, drawn(model, stack, SECOND, compact=True))


def test_banks_of_other_weights_on_one_model_do_not_share_them() -> None:
    model = own("llama")
    found = []
    for scale in (1.0, 0.5):
        stack = adapted(model)
        stack.flat_KP.mul_(scale)
        found.append(drawn(model, stack, FIRST))
        assert_same(found[-1], drawn(model, stack, FIRST, compact=True))
    assert not torch.equal(found[0].ids_KNT, found[1].ids_KNT)


def test_sampler_and_trainer_agree_on_every_token() -> None:
    model = own("qwen3")
    stack = adapted(model)
    found = drawn(model, stack, FIRST)
    with torch.no_grad():
        rows, view = Completions.of(found), stack.view((0, 1, 2))
        scored = score(model, stack, view, rows, Scoring(0.8, only_valid=True))
    torch.testing.assert_close(found.sampler_logprobs_KNT, scored.policy_KNT, rtol=0, atol=1e-5)


def test_temperature_is_that_of_each_call() -> None:
    model = tiny.loaded(own_forward=True)
    stack = adapted(model)
    prompts = pad_left(FIRST * 3, 0, CPU)
    u = torch.rand(3, 6, 8, generator=torch.Generator().manual_seed(0))
    for temperature in (1.0, 0.3, 1.0):
        fixed, compact = (
            rollout(
                model, prompts, u, Sampling(2, 8, temperature, c), (stack, stack.view((0, 1, 2)))
            )
            for c in (False, True)
        )
        assert_same(fixed, compact)
