"""One small case for the chunked head, and the plain formulas over full logits to hold it against."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from kltune.trainer import head as module
from kltune.trainer.head import GRADIENTS, Head, HeadRule, TokenColumns, token_columns

M, V, D, K = 11, 23, 7, 4
SUBSETS = [
    frozenset(names) for size in range(5) for names in itertools.combinations(GRADIENTS, size)
]
# (elements, fewest tokens): one chunk; token chunks of 3; vocabulary chunks of 5; both; single logits
CHUNKS = [(16_000_000, 32), (3 * V, 1), (5 * M, M), (15, 3), (1, 1)]
ALL = HeadRule(0.7, K, frozenset(GRADIENTS), None)


@dataclass
class Case:
    policy_MD: Tensor
    ref_MD: Tensor
    targets_M: Tensor
    policy_head: Head
    ref_head: Head

    def columns(self, rule: HeadRule = ALL) -> TokenColumns:
        return token_columns(
            self.policy_MD, self.ref_MD, self.targets_M, self.policy_head, self.ref_head, rule
        )

    def leaves(self) -> list[Tensor]:
        tensors = (self.policy_MD, self.policy_head.weight, self.policy_head.bias)
        return [t for t in tensors if t is not None and t.requires_grad]


def case(seed: int = 0, has_grad: bool = True) -> Case:
    generator = torch.Generator().manual_seed(seed)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    found = Case(
        drawn(M, D),
        drawn(M, D),
        torch.randint(0, V, (M,), generator=generator),
        Head(drawn(V, D), drawn(V)),
        Head(drawn(V, D), None),
    )
    for leaf in (found.policy_MD, found.policy_head.weight, found.policy_head.bias):
        assert leaf is not None
        leaf.requires_grad_(has_grad)
    return found


def plain(case: Case, rule: HeadRule = ALL) -> TokenColumns:
    """The formulas written down, every column with its gradient."""

    def log_probs(hidden: Tensor, head: Head) -> Tensor:
        logits = hidden @ head.weight.T + (0 if head.bias is None else head.bias)
        return (logits / rule.temperature).log_softmax(-1)

    p, q = log_probs(case.policy_MD, case.policy_head), log_probs(case.ref_MD, case.ref_head)
    top = p.topk(K).indices
    at = case.targets_M[:, None]
    return TokenColumns(
        p.gather(1, at)[:, 0],
        q.gather(1, at)[:, 0],
        (p.exp() * (p - q)).sum(-1),
        (q.exp() * (q - p)).sum(-1),
        -(p.exp() * p).sum(-1),
        (p.exp() * (p - q)).gather(1, top).sum(-1),
        (top == at).any(-1),
    )


def weights(name: str) -> Tensor:
    seed = ["policy", *GRADIENTS].index(name)
    return torch.randn(M, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def loss(columns: TokenColumns, names: frozenset[str]) -> Tensor:
    return torch.stack(
        [(getattr(columns, f"{n}_M") * weights(n)).sum() for n in ("policy", *sorted(names))]
    ).sum()


def set_chunks(monkeypatch: pytest.MonkeyPatch, chunks: tuple[int, int]) -> None:
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", chunks[0])
    monkeypatch.setattr(module, "MIN_TOKENS", chunks[1])


def columns_of(columns: TokenColumns) -> dict[str, Tensor]:
    return {name: getattr(columns, name) for name in TokenColumns.__dataclass_fields__}
