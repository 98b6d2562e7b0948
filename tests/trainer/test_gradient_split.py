"""The KL's share of the gradient against autograd of the two parts written out, and that training never notices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import tiny
import torch
from oracle import (
    Rule,
    Texts,
    advantages_of,
    aggregate,
    loss_kl,
    objective,
    push,
    recorded_bank,
    relative_error,
    reward_kl,
)
from torch import Tensor

from kltune.metrics.record import StepMetrics
from kltune.spec.model import ModelSpec
from kltune.spec.penalty import Penalty
from kltune.trainer.bank import Bank
from kltune.trainer.gradient_split import GradientSplit

ALGORITHMS = ["grpo", "dr-grpo", "rloo", "reinforce", "ppo"]
NAME = "train/grad_kl_share"
COEFFICIENT = {"grpo": 0.5, "dr-grpo": 4 / 3, "rloo": 1.0, "reinforce": 0.8, "ppo": 0.8}
"""What beta is divided by beside these advantages: spread of the proxy (tiny.settings), or a group's G / (G - 1)."""


def spread_of(scores: list[float], costs: list[list[float]], rule: Rule) -> list[float]:
    """What each completion's advantages are divided by."""
    if rule.algorithm in ("rloo", "dr-grpo"):
        return [1.0] * len(scores)
    whole = torch.tensor([s - sum(c) for s, c in zip(scores, costs, strict=True)]).double()
    if rule.algorithm == "grpo":
        return [float(g.std()) + 1e-4 for g in whole.split(rule.group_size) for _ in range(4)]
    return [unwhitened(scores, costs, rule)] * len(scores)


def unwhitened(scores: list[float], costs: list[list[float]], rule: Rule) -> float:
    """Standard deviation (n - 1) of what is whitened, over all tokens."""
    values = [x for row in raw_returns(scores, costs, rule) for x in row]
    return float(torch.tensor(values).double().std())


def raw_returns(scores: list[float], costs: list[list[float]], rule: Rule) -> list[list[float]]:
    found: list[list[float]] = []
    for score, cost in zip(scores, costs, strict=True):
        if rule.algorithm == "reinforce":
            found.append([score - sum(cost)] * len(cost))
            continue
        ahead, row = 0.0, [0.0] * len(cost)
        for t in reversed(range(len(cost))):
            ahead = row[t] = (score if t == len(cost) - 1 else 0.0) - cost[t] + 0.95 * ahead
        found.append(row)
    return found


def worth_of_scores(scores: list[float], costs: list[list[float]], rule: Rule) -> Tensor:
    """Advantages of the scores alone, by the spread of the whole; per token, joined."""
    free = [[0.0] * len(c) for c in costs]
    spread = spread_of(scores, costs, rule)
    if rule.algorithm in ("reinforce", "ppo"):
        rows = raw_returns(scores, free, rule)
        flat = torch.tensor([x for row in rows for x in row]).double()
        return (flat - flat.mean()) / spread[0]
    plain = Rule(rule.beta, rule.penalty, "rloo" if rule.algorithm == "rloo" else "dr-grpo")
    rows, _ = advantages_of(scores, free, plain)
    return torch.tensor([x / s for row, s in zip(rows, spread, strict=True) for x in row]).double()


def parts_of(
    flat_P: Tensor, bank: Bank, samples: list, scores: list[float], rule: Rule
) -> tuple[Tensor, Tensor]:
    """Gradients of the scores and of the KL, each by its own backward pass in float64."""
    penalty = rule.penalty
    assert penalty is not None
    texts = Texts(flat_P, bank.parts.stack, samples)
    now, _ = texts.sampled()
    costs = [[0.0] * n for n in texts.lengths]
    if penalty.in_reward:
        costs = [[rule.beta * k for k in row] for row in reward_kl(texts, penalty)]
    rows, _ = advantages_of(scores, costs, rule)
    whole = torch.tensor([a for row in rows for a in row], dtype=torch.float64)
    alone = worth_of_scores(scores, costs, rule)
    ratio = (now - now.detach()).exp()
    policy = aggregate(-ratio * alone, texts.lengths, rule)
    kl = aggregate(-ratio * (whole - alone), texts.lengths, rule)
    if penalty.in_loss:
        per_token = aggregate(loss_kl(texts, penalty, rule.top_k), texts.lengths, rule)
        kl = kl + rule.beta / COEFFICIENT[rule.algorithm] * per_token
    (of_scores,) = torch.autograd.grad(policy, texts.flat_P, retain_graph=True)
    (of_kl,) = torch.autograd.grad(kl, texts.flat_P)
    return of_scores, of_kl


def measured(
    penalty: Penalty | None, algorithm: str, **kwargs: object
) -> tuple[Bank, StepMetrics, Tensor, list, list[float]]:
    bank, proxy, _ = recorded_bank(1, algorithm=algorithm, kl={"top_k": 5}, **kwargs)
    beta = 0.0 if penalty is None else 0.3
    bank.admit(0, 7, tiny.trial(beta=beta, penalty=penalty, seed=3), None)
    push(bank, 0)
    before = bank.parts.stack.flat_KP[0].clone()
    (metrics,) = bank.train_step()
    (samples,) = proxy.calls
    return bank, metrics, before, samples, list(proxy.inner(samples))


CASES = [
    *((Penalty(name), "grpo") for name in ("k1-reward", "k2-loss", "exact-loss", "exact-full")),
    *((Penalty.K1_REWARD, algorithm) for algorithm in ALGORITHMS[1:]),
    (Penalty.EXACT_FULL, "dr-grpo"),
    (Penalty.K2_LOSS, "rloo"),
]


@pytest.mark.parametrize(("penalty", "algorithm"), CASES)
def test_the_share_is_that_of_two_separate_backward_passes(
    penalty: Penalty, algorithm: str
) -> None:
    bank, metrics, before, samples, scores = measured(penalty, algorithm)
    rule = Rule(0.3, penalty, algorithm)
    of_scores, of_kl = parts_of(before, bank, samples, scores, rule)
    total = objective(before, bank.parts.stack, samples, scores, rule).grad_P
    assert relative_error(of_scores + of_kl, total) < 1e-6
    expected = float(of_kl.norm() / (of_kl.norm() + of_scores.norm()))
    assert 0.001 < expected < 0.999, "the case must have two parts"
    assert metrics.values[NAME] == pytest.approx(expected, rel=2e-4)


def test_without_a_penalty_the_share_is_nothing_and_costs_no_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("no gradient of the KL is needed")

    monkeypatch.setattr("kltune.trainer.gradient_split.kl_part", never)
    assert measured(None, "grpo")[1].values[NAME] == 0.0


def test_at_the_start_the_penalty_pulls_at_nothing() -> None:
    bank = tiny.bank(1)
    bank.admit(0, 0, tiny.trial(beta=0.3, penalty="k2-loss"), None)
    assert bank.train_step()[0].values[NAME] == 0.0


def test_it_is_measured_in_the_step_after_each_periodic_evaluation() -> None:
    bank = tiny.bank(2)
    bank.admit(0, 0, tiny.trial(), None)
    push(bank, 0)
    steps = {0: 0, 1: 0}
    found: dict[int, list[int]] = {0: [], 1: []}
    for turn in range(11):
        if turn == 2:  # a slot that starts later is measured by its own count
            bank.admit(1, 1, tiny.trial(seed=1), None)
            push(bank, 1)
        for metrics in bank.train_step():
            steps[metrics.slot] += 1
            if NAME in metrics.values:
                found[metrics.slot].append(steps[metrics.slot])
    assert found == {0: [1, 6, 11], 1: [1, 6]}


def trained(monkeypatch: pytest.MonkeyPatch, *, is_measured: bool, **options: Any) -> list[Tensor]:
    """Weights after each step of two slots, with the share taken in every step or in none."""
    model, num_slots = options.pop("model", tiny.MODEL), options.pop("num_slots", 2)
    loaded = tiny.loaded(own_forward=options.pop("own_forward", False))
    settings = tiny.settings(compact=options.pop("compact", True), **options)
    settings = replace(settings, evaluate=replace_every(settings.evaluate))
    bank = Bank(loaded, tiny.task_data(loaded), settings, model, num_slots)
    for slot, penalty in zip(range(num_slots), ("k1-reward", "exact-loss"), strict=False):
        bank.admit(slot, slot, tiny.trial(beta=0.3, penalty=penalty, seed=slot), None)
        push(bank, slot, seed=slot)
    if not is_measured:
        monkeypatch.setattr(GradientSplit, "_is_due", lambda *_: False)
    found: list[Tensor] = []
    shares: list[float] = []
    for _ in range(4):
        metrics = bank.train_step()
        shares += [m.values[NAME] for m in metrics if NAME in m.values]
        found.append(bank.parts.stack.flat_KP.clone())
    # A first micro-batch may have groups of equal rewards only: then all of its gradient is the KL's.
    assert any(0 < share < 1 for share in shares) == is_measured
    assert bool(shares) == is_measured
    return found


def replace_every(evaluate: Any) -> Any:
    return evaluate.model_copy(update={"every": 1})


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compact": False},
        {"own_forward": True},
        {"own_forward": True, "compact": False},
        {"micro_batch": 4},
        {"micro_batch": 2},
        {"epochs": 2, "minibatches": 2},
        {"algorithm": "ppo"},
        {"entropy_bonus": 0.01},
        {"model": ModelSpec(base="builtin:tiny", finetune="full"), "num_slots": 1},
    ],
    ids=str,
)
def test_training_does_not_change_by_one_bit(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = trained(monkeypatch, is_measured=True, **options)
    second = trained(monkeypatch, is_measured=False, **options)
    assert not torch.equal(first[0], first[-1]), "the case must move"
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)


def test_a_broken_neighbour_does_not_reach_the_share(monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float] = []
    for is_broken in (False, True):
        bank = tiny.bank(2)
        for slot in (0, 1):
            bank.admit(slot, slot, tiny.trial(beta=0.3, seed=slot), None)
            push(bank, slot)
        if is_broken:
            bank.parts.stack.flat_KP[1] = torch.nan
        shares.append(bank.train_step()[0].values[NAME])
    assert shares[0] == pytest.approx(shares[1], rel=1e-6)
