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


def test_idle_steps_skipped_gradients_and_refills_leave_every_slot_equal_to_torchs_alone() -> None:
    generator = torch.Generator().manual_seed(1)
    num_slots = 3

    def draw(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator)

    def setting() -> AdamWSettings:
        rate, decay, norm = torch.rand(3, generator=generator).tolist()
        return AdamWSettings(10 ** (-1 - 2 * rate), 0.2 * decay, 10 ** (2 * norm - 1))

    weights = draw(num_slots, NUM_PARAMETERS)
    settings = [setting() for _ in range(num_slots)]
    alone = [Alone(weights[k], settings[k]) for k in range(num_slots)]
    stacked = StackedAdamW(num_slots, NUM_PARAMETERS, torch.device("cpu"))
    events = torch.randint(0, 10, (60, num_slots), generator=generator).tolist()
    seen = {"idle": 0, "refill": 0, "skip": 0, "zero": 0}
    for step, of_slots in enumerate(events):
        for k, event in enumerate(of_slots):
            name = {0: "idle", 1: "refill", 2: "skip", 3: "zero"}.get(event, "step")
            seen[name] = seen.get(name, 0) + 1
            grad = draw(NUM_PARAMETERS)
            if name == "refill":
                settings[k], weights[k] = setting(), draw(NUM_PARAMETERS)
                alone[k] = Alone(weights[k], settings[k])
                stacked.reset(k)
            elif name == "skip":
                grad[5] = math.nan
                stacked.step(k, weights[k], grad, settings[k])  # torch alone: no step
            elif name != "idle":
                grad = torch.zeros_like(grad) if name == "zero" else grad
                stacked.step(k, weights[k], grad, settings[k])
                alone[k].step(grad)
        for k in range(num_slots):
            assert_equal(stacked, k, weights[k], alone[k], step)
    assert min(seen.values()) >= 3, "the schedule reaches every event several times"


def assert_equal(
    stacked: StackedAdamW, slot: int, weights: torch.Tensor, alone: Alone, step: int
) -> None:
    """Weights, both moments and the step count."""
    state = alone.optimizer.state[alone.weights]
    steps = int(state["step"]) if state else 0
    assert stacked.num_steps_K[slot] == steps, (step, slot)
    zero = torch.zeros_like(weights)
    pairs = [
        (weights, alone.weights.detach()),
        (stacked.exp_avg_KP[slot], state.get("exp_avg", zero)),
        (stacked.exp_avg_sq_KP[slot], state.get("exp_avg_sq", zero)),
    ]
    for ours, theirs in pairs:
        assert float((ours - theirs).norm()) <= 3e-7 * float(theirs.norm()), (step, slot)


def test_parts_of_a_gradient_with_their_common_norm_equal_torchs_adamw_of_the_whole() -> None:
    generator = torch.Generator().manual_seed(2)
    settings = AdamWSettings(1e-2, 0.1, 0.5)
    whole = torch.randn(NUM_PARAMETERS, generator=generator)
    alone, cut = Alone(whole, settings), 30
    parts = [whole[:cut].clone(), whole[cut:].clone()]
    stacks = [StackedAdamW(2, part.numel(), torch.device("cpu")) for part in parts]
    for _ in range(5):
        grads = torch.randn(NUM_PARAMETERS, generator=generator).split([cut, NUM_PARAMETERS - cut])
        norm = math.hypot(*(float(grad.norm()) for grad in grads))
        assert norm > settings.max_grad_norm
        for stack, part, grad in zip(stacks, parts, grads, strict=True):
            assert stack.step(1, part, grad, settings, norm) == norm
        alone.step(torch.cat(grads))
        torch.testing.assert_close(torch.cat(parts), alone.weights.detach(), rtol=1e-6, atol=1e-7)


def test_a_non_finite_common_norm_stops_the_finite_part_too() -> None:
    stacked, weights = StackedAdamW(1, 4, torch.device("cpu")), torch.ones(4)
    norm = stacked.step(0, weights, torch.ones(4), AdamWSettings(1e-2, 0.1, 1.0), math.inf)
    assert norm == math.inf
    assert torch.equal(weights, torch.ones(4))
    assert stacked.num_steps_K == [0]
    assert not stacked.exp_avg_KP.any()


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
