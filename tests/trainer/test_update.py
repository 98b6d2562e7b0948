"""Several updates of one rollout: ratios against the policy that drew it, mini-batches, and where it stops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import tiny
import torch
from oracle import (
    SIGMA,
    Recorder,
    Rule,
    Texts,
    advantages_of,
    loss_kl,
    push,
    recorded_bank,
    relative_error,
)
from torch import Tensor

from kltune.spec.penalty import Penalty
from kltune.tasks.protocol import Sample
from kltune.trainer.bank import Bank
from kltune.trainer.keyed import Purpose, generator

LOSSES = [penalty for penalty in Penalty if penalty.in_loss and not penalty.in_reward]


def ready(penalty: Penalty | None, **trainer: object) -> tuple[Bank, Recorder]:
    bank, proxy, _ = recorded_bank(1, kl={"top_k": 5}, **trainer)
    beta = 0.0 if penalty is None else 0.3
    bank.admit(0, 0, tiny.trial(beta=beta, penalty=penalty, seed=3, learning_rate=3e-2), None)
    push(bank, 0)
    return bank, proxy


def second_gradient(
    now_P: Tensor, old_P: Tensor, bank: Bank, samples: Sequence[Sample], scores: Sequence[float], penalty: Penalty | None
) -> tuple[Tensor, float]:  # fmt: skip
    """Gradient of the objective at ``now_P`` for a rollout of ``old_P``, and the share of clipped tokens."""
    stack = bank.parts.stack
    texts, before = Texts(now_P, stack, samples), Texts(old_P, stack, samples)
    now, ref = texts.sampled()
    old = before.sampled()[0].detach()
    costs = [[0.0] * n for n in texts.lengths]
    advantages, _ = advantages_of(scores, costs, Rule(0.3, penalty))
    a = torch.tensor([x for row in advantages for x in row], dtype=torch.float64)
    ratio = (now - old).exp()
    clipped = ratio.clamp(0.8, 1.28)
    loss = -torch.minimum(ratio * a, clipped * a).mean()
    if penalty is not None:
        loss = loss + 0.3 / SIGMA * off_policy_kl(texts, penalty, ratio, now - ref).mean()
    (grad_P,) = torch.autograd.grad(loss, texts.flat_P)
    return grad_P, float((clipped * a < ratio * a).double().mean())


def off_policy_kl(texts: Texts, penalty: Penalty, ratio: Tensor, u: Tensor) -> Tensor:
    """What the sampled estimators become once the policy has moved; the rest is as on policy."""
    k3 = torch.exp(-u) - 1 + u
    inside, is_inside = texts.top_k(5)
    made: dict[Penalty, Callable[[], Tensor]] = {
        Penalty.K2_LOSS: lambda: ratio.detach() * u**2 / 2,
        Penalty.K3PLUS_LOSS: lambda: ratio.detach() * u**2 / 2,  # its gradient
        Penalty.WK1_LOSS: lambda: ratio * u,
        Penalty.WK3_LOSS: lambda: ratio * k3,
        Penalty.TOPK_LOSS: lambda: inside + torch.where(is_inside, 0.0, ratio * u),
    }
    return made.get(penalty, lambda: loss_kl(texts, penalty, 5))()


@pytest.mark.parametrize("penalty", [None, *LOSSES])
def test_the_ratio_of_a_later_pass_is_against_the_policy_that_drew(penalty: Penalty | None) -> None:
    clip = {"clip_ratio": 0.2, "clip_ratio_high": 0.28}
    once, proxy = ready(penalty, **clip)
    old_P = once.parts.stack.flat_KP[0].clone()
    once.train_step()
    now_P = once.parts.stack.flat_KP[0].clone()
    twice, _ = ready(penalty, epochs=2, **clip)
    (metrics,) = twice.train_step()
    samples = proxy.calls[0]
    expected, clipped = second_gradient(now_P, old_P, once, samples, proxy.inner(samples), penalty)
    assert relative_error(twice.parts.stack.grad_KP[0], expected) < 2e-5
    assert clipped > 0, "the case must clip"
    assert metrics.values["train/clip_frac"] == pytest.approx(clipped / 2, rel=1e-6)
    assert metrics.values["train/updates"] == 2
    assert metrics.values["kl/update_token"] > 0


def test_one_update_has_no_update_kl_and_clips_nothing() -> None:
    bank, _ = ready(None)
    values = bank.train_step()[0].values
    assert values["kl/update_token"] == values["train/clip_frac"] == 0


def test_mini_batches_take_every_completion_once_a_pass_in_the_trials_own_order() -> None:
    orders = [generator(3, Purpose.MINIBATCH, 0, epoch).permutation(8) for epoch in range(2)]
    assert [sorted(order) for order in orders] == [list(range(8))] * 2
    assert list(orders[0]) != list(orders[1])
    bank, proxy = ready(Penalty.K2_LOSS, minibatches=2)
    old_P = bank.parts.stack.flat_KP[0].clone()
    (metrics,) = bank.train_step()
    assert metrics.values["train/updates"] == 2
    # The first of the two updates alone, by hand: AdamW's first step is -rate x sign(gradient).
    samples = proxy.calls[0]
    rows = sorted(orders[0][:4].tolist())
    stack = bank.parts.stack
    texts = Texts(old_P, stack, [samples[i] for i in rows])
    advantages, _ = advantages_of(
        proxy.inner(samples), [[0.0] * len(s.token_ids) for s in samples], Rule(0.3, None)
    )
    a = torch.tensor([x for i in rows for x in advantages[i]], dtype=torch.float64)
    now, ref = texts.sampled()
    loss = (-(now - now.detach()).exp() * a + 0.3 / SIGMA * (now - ref) ** 2 / 2).mean()
    (grad_P,) = torch.autograd.grad(loss, texts.flat_P)
    cut, _ = ready(Penalty.K2_LOSS, minibatches=2, micro_batch=1)
    seen: list[Tensor] = []
    original = cut.parts.optimizer.step

    def spy(slot: int, weights_P: Tensor, gradient_P: Tensor, *rest: object) -> float:
        seen.append(gradient_P.clone())
        return original(slot, weights_P, gradient_P, *rest)  # pyright: ignore[reportArgumentType]

    cut.parts.optimizer.step = spy  # pyright: ignore[reportAttributeAccessIssue]
    cut.train_step()
    assert len(seen) == 2
    assert relative_error(seen[0], grad_P) < 1e-5
    assert relative_error(cut.parts.stack.flat_KP[0], stack.flat_KP[0]) < 1e-3


def test_a_gradient_that_breaks_in_a_later_update_keeps_the_weights_of_before() -> None:
    bank, _ = ready(Penalty.K2_LOSS, epochs=3)
    calls = 0
    original = bank.parts.optimizer.step

    def breaking(slot: int, weights_P: Tensor, grad_P: Tensor, *rest: object) -> float:
        nonlocal calls
        calls += 1
        if calls == 2:
            grad_P.fill_(math.nan)
        return original(slot, weights_P, grad_P, *rest)  # pyright: ignore[reportArgumentType]

    bank.parts.optimizer.step = breaking  # pyright: ignore[reportAttributeAccessIssue]
    (metrics,) = bank.train_step()
    assert not metrics.is_finite
    assert calls == 2, "nothing is applied after the break"
    assert bank.parts.optimizer.num_steps_K == [1]
    assert metrics.values["train/updates"] == 1, "what was applied (field case A53)"
    assert torch.isfinite(bank.parts.stack.flat_KP).all()
    assert metrics.values["ctrl/beta_next"] == metrics.beta


def test_an_entropy_bonus_raises_entropy() -> None:
    def entropy(bonus: float) -> float:
        bank, _ = ready(None, entropy_bonus=bonus, algorithm="dr-grpo")
        return [bank.train_step()[0].values["train/entropy_token"] for _ in range(6)][-1]

    assert entropy(1.0) > entropy(0.0) + 0.1
