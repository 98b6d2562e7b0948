"""Gradients of one chunk of logits; against autograd they are tested in test_head.py."""

from __future__ import annotations

import torch
from torch import Tensor

from kltune.trainer.head_chunks import Side
from kltune.trainer.head_gradient import Incoming, add_gradients

WHOLE = slice(0, None)


def log_probs(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(3, 6, generator=generator, dtype=torch.float64).log_softmax(-1)


def incoming(grads: dict[str, Tensor], log_p: Tensor, temperature: float = 1.0) -> Incoming:
    entropy = -(log_p.exp() * log_p).sum(-1)
    order = ("policy", "reference", "exact", "forward", "entropy", "top_k")
    return Incoming(
        temperature,
        torch.tensor([0, 2, 5]),
        tuple(grads.get(name) for name in order),
        (torch.zeros_like(entropy), entropy, None, None),
    )


def test_every_columns_gradient_sums_to_zero_over_the_vocabulary() -> None:
    """Adding a constant to all logits changes nothing."""
    log_p, log_q = log_probs(0), log_probs(1)
    one = torch.ones(3, dtype=torch.float64)
    for name in ("policy", "forward", "entropy"):
        slope = incoming({name: one}, log_p).slope(slice(0, 3))
        grad = slope.at(log_p, log_q, WHOLE)
        assert float(grad.norm()) > 0.1
        torch.testing.assert_close(grad.sum(-1), 0 * one, rtol=0, atol=1e-12)


def test_the_temperature_divides_the_gradient() -> None:
    log_p = log_probs(0)
    grads = {"policy": torch.ones(3, dtype=torch.float64)}
    cold, warm = (
        incoming(grads, log_p, t).slope(slice(0, 3)).at(log_p, None, WHOLE) for t in (0.5, 1.0)
    )
    torch.testing.assert_close(cold, 2 * warm)


def test_the_reference_is_asked_for_only_where_it_is_needed() -> None:
    one = torch.ones(3, dtype=torch.float64)
    needs = {
        name: incoming({name: one}, log_probs(0)).slope(slice(0, 3)).needs_reference
        for name in ("policy", "entropy", "exact", "forward")
    }
    assert needs == {"policy": False, "entropy": False, "exact": True, "forward": True}


def test_a_token_without_incoming_gradient_adds_nothing_even_where_it_is_not_a_number() -> None:
    log_p = log_probs(0)
    log_p[1] = torch.nan
    grads = {"policy": torch.tensor([1.0, 0.0, 2.0], dtype=torch.float64)}
    slope = incoming(grads, log_p).slope(slice(0, 3))
    grad = slope.at(log_p, None, WHOLE)
    assert not grad[1].any()
    hidden = torch.ones(3, 2, dtype=torch.float64)
    hidden[1] = torch.nan
    policy = Side(hidden, torch.ones(6, 2, dtype=torch.float64), None, 1.0)
    sums: list[Tensor | None] = [torch.zeros(3, 2).double(), torch.zeros(6, 2).double(), None]
    add_gradients(sums, policy, grad, (slice(0, 3), WHOLE), slope)
    for total in (sums[0], sums[1]):
        assert total is not None
        assert total.isfinite().all()
