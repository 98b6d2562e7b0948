"""A step's objective computed a second time, independently: unpadded texts one by one, weights written out, float64.

Knows kltune only by its public names: what was sampled comes from the scorer that was called.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import tiny
import torch
from torch import Tensor

from kltune.spec.trial import Penalty
from kltune.tasks.protocol import Sample, Scorer
from kltune.trainer.bank import Bank
from kltune.trainer.lora import AdapterStack

SIGMA = 0.5
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
    num_slots: int, *, compact: bool = True, never_ends: bool = False, **trainer: object
) -> tuple[Bank, Recorder, Recorder]:
    """A tiny bank, and what its proxy and its gold were shown."""
    model = tiny.loaded()
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
        for sample in samples:
            prompt = tokenizer.encode(sample.prompt.text)
            ids = torch.tensor([prompt + list(sample.token_ids)])
            rows = slice(len(prompt) - 1, -1)
            logits = torch.func.functional_call(model, merged, kwargs={"input_ids": ids}).logits[
                0, rows
            ]
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

    def exact(self) -> list[float]:
        """Exact KL of each text, nats per sequence."""
        pairs = zip(self.policy, self.reference, strict=True)
        return [float((p.exp() * (p - r)).sum().detach()) for p, r in pairs]


def objective(
    flat_P: Tensor, stack: AdapterStack, samples: Sequence[Sample], scores: Sequence[float], beta: float,
    penalty: Penalty | None, group_size: int = 4,
) -> Objective:  # fmt: skip
    """GRPO's loss on policy with the KL where the penalty puts it, and its gradient by autograd."""
    texts = Texts(flat_P, stack, samples)
    now, ref = texts.sampled()
    u = now - ref
    k1_seq = [float(part.sum()) for part in u.detach().split(texts.lengths)]
    price = beta if penalty is Penalty.K1_REWARD else 0.0
    rewards = [score - price * kl for score, kl in zip(scores, k1_seq, strict=True)]
    advantages: list[float] = []
    zero_groups = 0
    for first in range(0, len(rewards), group_size):
        group = torch.tensor(rewards[first : first + group_size], dtype=torch.float64)
        zero_groups += int(len(set(group.tolist())) == 1)
        advantages += ((group - group.mean()) / (group.std() + 1e-4)).tolist()
    per_token = torch.cat([
        torch.full((length,), a, dtype=torch.float64) for length, a in zip(texts.lengths, advantages, strict=True)
    ])  # fmt: skip
    kl = {Penalty.K2_LOSS: u**2 / 2, Penalty.K3_LOSS: torch.exp(-u) - 1 + u}.get(penalty, 0 * u)
    loss = (-(now - now.detach()).exp() * per_token + beta / SIGMA * kl).mean()
    (grad_P,) = torch.autograd.grad(loss, texts.flat_P)
    exact = texts.exact()
    return Objective(
        loss=float(loss.detach()),
        grad_P=grad_P,
        kl_token=sum(exact) / sum(texts.lengths),
        kl_seq=sum(exact) / len(exact),
        k1_seq=sum(k1_seq) / len(k1_seq),
        zero_group_frac=zero_groups * group_size / len(rewards),
        advantages=advantages,
    )


def relative_error(got: Tensor, expected: Tensor) -> float:
    """Norm of the difference over the norm of what was expected."""
    return float((got.double() - expected.double()).norm() / expected.double().norm())
