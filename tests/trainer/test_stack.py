"""Both kinds of trainable weights are what the trainer asks for."""

from __future__ import annotations

import pytest
import tiny
import torch

from kltune.trainer.full import FullView, FullWeights
from kltune.trainer.lora import AdapterStack, AdapterView, attach
from kltune.trainer.stack import TrainableStack, TrainableView


def adapters() -> tuple[TrainableStack[AdapterView], TrainableView]:
    stack: AdapterStack = attach(tiny.loaded().body, 2, 4, 8)
    return stack, stack.view([1])


def full() -> tuple[TrainableStack[FullView], TrainableView]:
    stack = FullWeights(tiny.loaded().model, 2, torch.device("cpu"))
    return stack, stack.view([1])


@pytest.mark.parametrize("build", [adapters, full])
def test_adapters_and_full_weights_have_every_member_that_the_trainer_uses(build: object) -> None:
    stack, view = build()  # pyright: ignore[reportCallIssue]
    assert isinstance(stack, TrainableStack)
    assert isinstance(view, TrainableView)
    assert stack.flat_KP.shape == stack.grad_KP.shape == (2, stack.num_parameters)
    assert view.flat_KP.shape == view.grad_KP.shape == (1, stack.num_parameters)
    assert view.num_slots == 1
