"""A step's objective computed a second time, independently: unpadded texts one by one, weights written out, float64.

Knows kltune only by its public names: what was sampled comes from the scorer that was called.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import tiny
import torch
from torch import Tensor

from kltune.spec.penalty import Penalty
from kltune.tasks.protocol import Sample, Scorer
from kltune.trainer.bank import Bank
from kltune.trainer.lora import AdapterStack

SIGMA, STD = 0.5, 0.8
"""Of tiny.settings()."""


@dataclass
class Recorder:
    """A scorer that keeps what it was shown."""

    inner: Scorer = field(default_factory=lambda: tiny.CountWord("w3"))
    calls: list[list[Sample]] = field(default_factory=list[list[Sample]])
    name: str = "recorder"

    def __call__(self, samples: Sequence[Sample]) -> Sequence[float]:
        self.calls.append(list(samples))
        return self.inner(samples)


def recorded_bank(
    num_slots: int,
    *,
    compact: bool = True,
    never_ends: bool = False,
    own_forward: bool = False,
    **trainer: object,
) -> tuple[Bank, Recorder, Recorder]:
    """A tiny bank, and what its proxy and its gold were shown."""
    model = tiny.loaded(own_forward=own_forward)
    proxy, gold = Recorder(), Recorder(tiny.CountWord("w4"))
    data = replace(tiny.task_data(model), proxy=proxy, gold=gold)
    if never_ends:
        model = replace(model, stop_ids=(10_000,))
    return (
        Bank(model, data, tiny.settings(compact=compact, **trainer), tiny.MODEL, num_slots),
        proxy,
        gold,
    )


def push(bank: Bank, slot: int, seed: int = 0, scale: float = 0.06) -> None:
    """Move a slot's adapter off the reference."""
    row_P = bank.parts.stack.flat_KP[slot]
    row_P.add_(scale * torch.randn(row_P.shape, generator=torch.Generator().manual_seed(seed)))


@dataclass
class Objective:
    """What a step must have measured, and its gradient."""

    loss: float
    grad_P: Tensor
    kl_token: float
    kl_seq: float
    k1_seq: float
    zero_group_frac: float
    advantages: list[float]


class Texts:
    """Sampled texts under the reference and under one adapter, in float64."""

    def __init__(self, flat_P: Tensor, stack: AdapterStack, samples: Sequence[Sample]) -> None:
        self.flat_P = flat_P.double().clone().requires_grad_(True)
        model, tokenizer = tiny.llama().double().eval(), tiny.tokenizer()
        merged: dict[str, Tensor] = {}
        start = 0
        for target in stack.targets:
            a = self.flat_P[start : start + stack.rank * target.num_in].view(
                stack.rank, target.num_in
            )
            start += a.numel()
            b = self.flat_P[start : start + target.num_out * stack.rank].view(
                target.num_out, stack.rank
            )
            start += b.numel()
            name = f"model.{target.name}.weight"
            merged[name] = (
                model.get_parameter(name).detach() + tiny.MODEL.lora_alpha / tiny.MODEL.rank * b @ a
            )
        self.lengths = [len(s.token_ids) for s in samples]
        self.policy: list[Tensor] = []
        self.reference: list[Tensor] = []
        self.picked: list[Tensor] = []
        self.hidden: list[Tensor] = []
        """States that predict each completion token."""
        for sample in samples:
            prompt = tokenizer.encode(sample.prompt.text)
            ids = torch.tensor([prompt + list(sample.token_ids)])
            rows = slice(len(prompt) - 1, -1)
            asked = {"input_ids": ids, "output_hidden_states": True}
            output = torch.func.functional_call(model, merged, kwargs=asked)
            logits = output.logits[0, rows]
            self.hidden.append(output.hidden_states[-1][0, rows])
            with torch.no_grad():
                ref_logits = model(input_ids=ids).logits[0, rows]
            self.policy.append(logits.log_softmax(-1))
            self.reference.append(ref_logits.log_softmax(-1))
            self.picked.append(torch.tensor(sample.token_ids)[:, None])

    def sampled(self) -> tuple[Tensor, Tensor]:
        """Log-probs of the sampled tokens of all texts, joined."""
        pairs = zip(self.policy, self.reference, self.picked, strict=True)
        policy, reference = zip(
            *((p.gather(1, i)[:, 0], r.gather(1, i)[:, 0]) for p, r, i in pairs), strict=True
        )
        return torch.cat(policy), torch.cat(reference)

    def exact(self) -> Tensor:
        """Exact KL of each token's distribution, joined."""
        pairs = zip(self.policy, self.reference, strict=True)
        return torch.cat([(p.exp() * (p - r)).sum(-1) for p, r in pairs])

    def exact_by_text(self) -> list[float]:
        """Its sum over each text, nats per sequence."""
        return [float(part.sum()) for part in self.exact().detach().split(self.lengths)]

    def forward(self) -> Tensor:
        """The exact KL the other way round."""
        pairs = zip(self.policy, self.reference, strict=True)
        return torch.cat([(r.exp() * (r - p)).sum(-1) for p, r in pairs])

    def top_k(self, size: int) -> tuple[Tensor, Tensor]:
        """Part of the exact KL by the likeliest tokens, and whether the sampled one is among them."""
        parts: list[Tensor] = []
        inside: list[Tensor] = []
        for p, r, i in zip(self.policy, self.reference, self.picked, strict=True):
            best = p.detach().topk(size).indices
            parts.append((p.exp() * (p - r)).gather(1, best).sum(-1))
            inside.append((best == i).any(-1))
        return torch.cat(parts), torch.cat(inside)


@dataclass(frozen=True)
class Rule:
    """How the objective is made."""

    beta: float
    penalty: Penalty | None
    algorithm: str = "grpo"
    credit: str = "sequence"
    group_size: int = 4
    top_k: int = 5
    max_new_tokens: int = 6
    gae_lambda: float = 0.95


def loss_kl(texts: Texts, penalty: Penalty, top_k: int) -> Tensor:
    """Per-token KL of the part in the loss, on policy."""
    now, ref = texts.sampled()
    u = now - ref
    ratio = (now - now.detach()).exp()
    inside, is_inside = texts.top_k(top_k)
    k3 = torch.exp(-u) - 1 + u
    return {
        "k1": lambda: u,
        "abs": u.abs,
        "k2": lambda: u**2 / 2,
        "k3": lambda: k3,
        "wk1": lambda: ratio * u,
        "wk3": lambda: ratio * k3,
        "k3plus": lambda: k3.detach() + u**2 / 2 - (u**2 / 2).detach(),
        "exact": texts.exact,
        "topk": lambda: inside + torch.where(is_inside, 0.0, ratio * u),
        "forward": texts.forward,
        "jeffreys": lambda: texts.exact() + texts.forward(),
    }[penalty.value.rpartition("-")[0]]()


def reward_kl(texts: Texts, penalty: Penalty) -> list[list[float]]:
    """Per-token KL paid in the reward, by text."""
    now, ref = (x.detach() for x in texts.sampled())
    u = now - ref
    paid = {
        "k1": u,
        "abs": u.abs(),
        "k2": u**2 / 2,
        "k3": torch.exp(-u) - 1 + u,
        "exact": texts.exact().detach(),
    }[penalty.value.rpartition("-")[0]]
    return [part.tolist() for part in paid.split(texts.lengths)]


def returns_of(score: float, cost: list[float], rule: Rule, width: int) -> list[float]:
    """What each position of one completion is credited with, past its end too."""
    own = 1 if rule.penalty is Penalty.EXACT_FULL else 0
    if rule.credit == "reward-to-go":
        return [score - sum(cost[t + own :]) for t in range(width)]
    if rule.credit == "length-mean":
        return [score - sum(cost) / len(cost)] * width
    return [score - sum(cost)] * width


def advantages_of(
    scores: Sequence[float], costs: list[list[float]], rule: Rule
) -> tuple[list[list[float]], float]:
    """Advantage of every valid token by text, and the share of groups that teach nothing."""
    lengths = [len(cost) for cost in costs]
    if rule.algorithm == "ppo":
        return whitened([gae(s, c, rule) for s, c in zip(scores, costs, strict=True)], 0.0), 0.0
    width = max(lengths)
    returns = [returns_of(s, c, rule, width) for s, c in zip(scores, costs, strict=True)]
    if rule.algorithm == "reinforce":
        valid = [row[:n] for row, n in zip(returns, lengths, strict=True)]
        return whitened(valid, 1e-8), 0.0
    found: list[list[float]] = []
    zero_groups = 0
    for first in range(0, len(scores), rule.group_size):
        group = returns[first : first + rule.group_size]
        whole = [
            s - (sum(c) / len(c) if rule.credit == "length-mean" else sum(c))
            for s, c in zip(scores[first : first + rule.group_size], costs[first:], strict=False)
        ]
        zero_groups += int(len(set(whole)) == 1)
        spread = torch.tensor(whole, dtype=torch.float64).std().item() + 1e-4
        for i, row in enumerate(group):
            others = [r for j, r in enumerate(group) if j != i or rule.algorithm != "rloo"]
            centred = [x - sum(r[t] for r in others) / len(others) for t, x in enumerate(row)]
            divisor = spread if rule.algorithm == "grpo" else 1.0
            found.append([x / divisor for x in centred[: lengths[first + i]]])
    return found, zero_groups * rule.group_size / len(scores)


def gae(score: float, cost: list[float], rule: Rule) -> list[float]:
    """Generalised advantages where every value is 0, gamma 1."""
    rewards = [-c for c in cost]
    rewards[-1] += score
    found = [0.0] * len(rewards)
    following = 0.0
    for t in reversed(range(len(rewards))):
        following = found[t] = rewards[t] + rule.gae_lambda * following
    return found


def whitened(rows: list[list[float]], epsilon: float) -> list[list[float]]:
    """Less the mean, over the standard deviation (n - 1), of all numbers."""
    flat = torch.tensor([x for row in rows for x in row], dtype=torch.float64)
    return [[(x - flat.mean().item()) / (flat.std().item() + epsilon) for x in r] for r in rows]


def aggregate(values: Tensor, lengths: list[int], rule: Rule) -> Tensor:
    """Token losses as one number, by the algorithm's own rule."""
    rows = values.split(lengths)
    match rule.algorithm:
        case "dr-grpo":
            return values.sum() / (len(lengths) * rule.max_new_tokens)
        case "rloo":
            return torch.stack([row.sum() for row in rows]).mean()
        case _:
            return values.mean()


def objective(
    flat_P: Tensor, stack: AdapterStack, samples: Sequence[Sample], scores: Sequence[float], rule: Rule
) -> Objective:  # fmt: skip
    """The loss on policy with the KL where the penalty puts it, and its gradient by autograd."""
    texts = Texts(flat_P, stack, samples)
    now, ref = texts.sampled()
    penalty = rule.penalty
    costs = [[0.0] * n for n in texts.lengths]
    if penalty is not None and penalty.in_reward:
        costs = [[rule.beta * k for k in row] for row in reward_kl(texts, penalty)]
    advantages, zero_frac = advantages_of(scores, costs, rule)
    per_token = torch.tensor([a for row in advantages for a in row], dtype=torch.float64)
    loss = aggregate(-(now - now.detach()).exp() * per_token, texts.lengths, rule)
    if penalty is not None and penalty.in_loss:
        undone = {"dr-grpo": rule.group_size / (rule.group_size - 1), "rloo": 1.0}
        scale = {"grpo": SIGMA, "reinforce": STD, "ppo": STD, **undone}[rule.algorithm]
        kl = aggregate(loss_kl(texts, penalty, rule.top_k), texts.lengths, rule)
        loss = loss + rule.beta / scale * kl
    (grad_P,) = torch.autograd.grad(loss, texts.flat_P)
    exact = texts.exact_by_text()
    k1_seq = [float(part.sum()) for part in (now - ref).detach().split(texts.lengths)]
    return Objective(
        loss=float(loss.detach()),
        grad_P=grad_P,
        kl_token=sum(exact) / sum(texts.lengths),
        kl_seq=sum(exact) / len(exact),
        k1_seq=sum(k1_seq) / len(k1_seq),
        zero_group_frac=zero_frac,
        advantages=[sum(row) / len(row) for row in advantages],
    )


def relative_error(got: Tensor, expected: Tensor) -> float:
    """Norm of the difference over the norm of what was expected."""
    return float((got.double() - expected.double()).norm() / expected.double().norm())
