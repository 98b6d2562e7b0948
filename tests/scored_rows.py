"""A few completions, adapters for them, and their numbers with a gradient: what tests of the own forward score."""

from __future__ import annotations

import torch
from torch import Tensor

from kltune.trainer.encode import PaddedPrompts, pad_left
from kltune.trainer.logprobs import Completions, Logprobs, Scoring, score
from kltune.trainer.lora import AdapterStack, AdapterView, attach
from kltune.trainer.model import LoadedModel

CPU = torch.device("cpu")
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


def second_of(rows: Completions) -> Completions:
    prompts = PaddedPrompts(rows.prompts.ids[4:], rows.prompts.mask[4:])
    return Completions(prompts, rows.ids_KNT[1:], rows.mask_KNT[1:])


def relative(got: Tensor, wanted: Tensor) -> float:
    return float((got - wanted).norm() / wanted.norm())
