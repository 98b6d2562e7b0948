from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import tiny
import torch
from oracle import Texts, push, recorded_bank, relative_error, reward_kl

from kltune.spec.penalty import Penalty
from kltune.tasks.protocol import Sample
from kltune.trainer.critic import Critic, values


def test_a_value_is_the_heads_line_through_the_hidden_state_and_0_where_masked() -> None:
    hidden = torch.tensor([[[[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]]]])
    head = torch.tensor([[10.0, 100.0, 0.5]])
    mask = torch.tensor([[[True, True, False]]])
    assert values(hidden, head, mask).tolist() == [[[210.5, 430.5, 0.0]]]


def test_what_is_not_finite_at_a_masked_token_reaches_neither_value_nor_gradient() -> None:
    hidden = torch.tensor([[[[1.0], [torch.inf]]]])
    head = torch.ones(1, 2, requires_grad=True)
    found = values(hidden, head, torch.tensor([[[True, False]]]))
    assert found.tolist() == [[[2.0, 0.0]]]


def test_heads_start_at_zero_and_a_reset_forgets_one_slot_alone() -> None:
    critic = Critic(2, 4, torch.device("cpu"))
    assert not critic.head_KH.any()
    critic.head_KH.fill_(3.0)
    critic.optimizer.exp_avg_KP.fill_(1.0)
    critic.reset(0)
    assert not critic.head_KH[0].any()
    assert not critic.optimizer.exp_avg_KP[0].any()
    assert critic.head_KH[1].all()
    assert critic.optimizer.exp_avg_KP[1].all()


def test_the_critics_gradient_is_autograds_of_half_the_squared_error() -> None:
    bank, proxy, _ = recorded_bank(1, algorithm="ppo", critic={"gae_lambda": 0.9, "gamma": 0.97})
    bank.admit(0, 0, tiny.trial(beta=0.3, penalty="k1-reward", seed=3), None)
    push(bank, 0)
    parts = bank.parts
    assert parts.critic is not None
    (row,) = parts.rows.critics((0,))
    drawn = torch.Generator().manual_seed(5)
    parts.stack.flat_KP[row] += 0.1 * torch.randn(parts.stack.num_parameters, generator=drawn)
    parts.critic.head_KH[0] = 0.3 * torch.randn(33, generator=drawn)
    policy_P, critic_P = parts.stack.flat_KP[0].clone(), parts.stack.flat_KP[row].clone()
    head_H = parts.critic.head_KH[0].double().clone().requires_grad_(True)
    (metrics,) = bank.train_step()
    samples = proxy.calls[0]
    texts = Texts(critic_P, parts.stack, samples)
    costs = [[0.3 * k for k in r] for r in reward_kl(Texts(policy_P, parts.stack, samples), Penalty.K1_REWARD)]  # fmt: skip
    errors = []
    for hidden, score, cost in zip(texts.hidden, proxy.inner(samples), costs, strict=True):
        v = hidden @ head_H[:-1] + head_H[-1]
        errors.append((v - returns_of(v.tolist(), score, cost)) ** 2 / 2)
    loss = torch.cat(errors).mean()
    grad_P, grad_H = torch.autograd.grad(loss, (texts.flat_P, head_H))
    assert metrics.values["train/value_loss"] == pytest.approx(float(loss.detach()), rel=1e-5)
    assert relative_error(parts.stack.grad_KP[row], grad_P) < 1e-5
    # AdamW's first moment is a tenth of the gradient, clipped by the norm of weights and head together
    norm = float(torch.hypot(grad_P.norm(), grad_H.norm()))
    clipped = grad_H * min(1.0, 1.0 / norm)
    assert relative_error(parts.critic.optimizer.exp_avg_KP[0], 0.1 * clipped) < 1e-5


def returns_of(values_T: list[float], score: float, cost: list[float]) -> torch.Tensor:
    """Advantage + value by the recursion of 1506.02438, gamma .97, lambda .9."""
    rewards = [-c for c in cost]
    rewards[-1] += score
    following, advantages = 0.0, [0.0] * len(rewards)
    for t in reversed(range(len(rewards))):
        after = values_T[t + 1] if t + 1 < len(rewards) else 0.0
        following = rewards[t] + 0.97 * after - values_T[t] + 0.97 * 0.9 * following
        advantages[t] = following
    pairs = zip(advantages, values_T, strict=True)
    return torch.tensor([a + v for a, v in pairs], dtype=torch.float64)


def test_a_critic_comes_to_know_a_return_that_is_always_the_same() -> None:
    bank, proxy, _ = recorded_bank(1, algorithm="ppo", critic={"learning_rate": 1e-2})
    proxy.inner = Always(2.0)
    bank.admit(0, 0, tiny.trial(beta=0.0, penalty=None, learning_rate=1e-7, seed=1), None)
    losses = [bank.train_step()[0].values["train/value_loss"] for _ in range(40)]
    assert losses[0] > 1.0, "values of 0 know nothing"
    assert sum(losses[-5:]) / 5 < 0.1


@dataclass
class Always:
    """A scorer of one mind."""

    score: float
    name: str = "always"

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        return [self.score] * len(samples)
