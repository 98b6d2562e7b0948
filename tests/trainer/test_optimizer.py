"""The stacked AdamW against torch's own, slot by slot."""

from __future__ import annotations

import math

import pytest
import torch

from kltune.trainer.optimizer import AdamWSettings, StackedAdamW

NUM_PARAMETERS = 37


class Alone:
    """torch.optim.AdamW with clip_grad_norm_ on one slot."""

    def __init__(self, weights: torch.Tensor, settings: AdamWSettings) -> None:
        self.weights = torch.nn.Parameter(weights.clone())
        self.max_grad_norm = settings.max_grad_norm
        self.optimizer = torch.optim.AdamW(
            [self.weights], lr=settings.learning_rate, weight_decay=settings.weight_decay
        )

    def step(self, grad: torch.Tensor) -> float:
        self.weights.grad = grad.clone()
        norm = torch.nn.utils.clip_grad_norm_([self.weights], self.max_grad_norm)
        self.optimizer.step()
        return float(norm)


def test_every_slot_equals_torchs_adamw_alone_over_20_steps_and_a_refill() -> None:
    generator = torch.Generator().manual_seed(0)

    def draw() -> torch.Tensor:
        return torch.randn(NUM_PARAMETERS, generator=generator)

    settings = [
        AdamWSettings(1e-2, 0.0, 1.0),
        AdamWSettings(3e-3, 0.1, 0.5),
        AdamWSettings(1e-1, 0.01, 100.0),
    ]
    weights = torch.stack([draw() for _ in settings])
    alone = [Alone(weights[k], settings[k]) for k in range(3)]
    stacked = StackedAdamW(3, NUM_PARAMETERS, torch.device("cpu"))
    for step in range(20):
        if step == 7:  # slot 1 ends; another trial with another rate takes its place
            settings[1] = AdamWSettings(2e-2, 0.05, 2.0)
            weights[1] = draw()
            alone[1] = Alone(weights[1], settings[1])
            stacked.reset(1)
        for k in range(3):
            grad = draw() * 10 ** float(torch.empty(1).uniform_(-3, 1, generator=generator))
            norm = stacked.step(k, weights[k], grad, settings[k])
            assert norm == pytest.approx(alone[k].step(grad), rel=1e-6)
            difference = (weights[k] - alone[k].weights.detach()).norm() / alone[
                k
            ].weights.detach().norm()
            assert float(difference) <= 1e-7, (step, k)
    assert stacked.num_steps_K == [20, 13, 20]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_non_finite_gradient_changes_nothing(bad: float) -> None:
    stacked = StackedAdamW(2, 4, torch.device("cpu"))
    weights, settings = torch.ones(4), AdamWSettings(1e-2, 0.1, 1.0)
    stacked.step(0, weights, torch.tensor([1.0, -2.0, 0.5, 0.0]), settings)
    before = [t.clone() for t in (weights, stacked.exp_avg_KP, stacked.exp_avg_sq_KP)]
    norm = stacked.step(0, weights, torch.tensor([1.0, bad, 1.0, 1.0]), settings)
    assert not math.isfinite(norm)
    for tensor, old in zip(
        (weights, stacked.exp_avg_KP, stacked.exp_avg_sq_KP), before, strict=True
    ):
        assert torch.equal(tensor, old)
    assert stacked.num_steps_K == [1, 0]


def test_a_step_of_one_slot_touches_no_other() -> None:
    stacked = StackedAdamW(2, 4, torch.device("cpu"))
    stacked.step(1, torch.ones(4), torch.ones(4), AdamWSettings(1e-2, 0.0, 1.0))
    assert not stacked.exp_avg_KP[0].any()
    assert not stacked.exp_avg_sq_KP[0].any()
    assert stacked.exp_avg_KP[1].any()


def test_the_norm_is_reported_before_the_clip() -> None:
    stacked = StackedAdamW(1, 2, torch.device("cpu"))
    norm = stacked.step(
        0, torch.zeros(2), torch.tensor([30.0, 40.0]), AdamWSettings(1e-2, 0.0, 1.0)
    )
    assert norm == pytest.approx(50.0)
    torch.testing.assert_close(stacked.exp_avg_KP[0], 0.1 * torch.tensor([0.6, 0.8]))
