"""Two tokens over a vocabulary of five with a table of logits: every expectation is a finite sum."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from kltune.spec.penalty import Penalty
from kltune.trainer.kl import TokenKL, exact, forward
from kltune.trainer.penalty_gradients import (
    FULL,
    LOCAL,
    Terms,
    every_gradient,
    gradients,
    penalty_losses,
    recipe,
    reward_advantages,
)

V = 5
PAIRS = torch.tensor(list(itertools.product(range(V), repeat=2)))


@dataclass
class Table:
    """Logits of the first token and of the second given the first, as one flat row."""

    flat_KP: Tensor
    grad_KP: Tensor = field(init=False)
    num_slots: int = 1

    def __post_init__(self) -> None:
        self.leaf = self.flat_KP.clone().requires_grad_(True)
        self.grad_KP = torch.zeros_like(self.flat_KP)

    def add_gradients(self, loss: Tensor, *, retain_graph: bool = False) -> None:
        (found,) = torch.autograd.grad(loss, self.leaf, retain_graph=retain_graph)
        self.grad_KP += found

    def logprobs(self) -> tuple[Tensor, Tensor]:
        """``[V]`` and ``[V, V]``."""
        return self.leaf[0, :V].log_softmax(-1), self.leaf[0, V:].view(V, V).log_softmax(-1)


def drawn(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, V + V * V, generator=generator, dtype=torch.float64)


def pair() -> tuple[Table, Table]:
    return Table(drawn(0)), Table(drawn(1))


def columns_of(policy: Table, reference: Table, rows: Tensor, top_k: int = 2) -> TokenKL:
    """What a penalty needs at both tokens of some completions ``[N, 2]``."""
    first, second = policy.logprobs()
    ref_first, ref_second = (part.detach() for part in reference.logprobs())

    def tokens(one: Tensor, two: Tensor) -> Tensor:
        return torch.stack([one[rows[:, 0]], two[rows[:, 0], rows[:, 1]]], dim=1)

    def whole(one: Tensor, two: Tensor) -> Tensor:
        return torch.stack([one.expand(len(rows)), two[rows[:, 0]]], dim=1)

    def likeliest(logprobs: Tensor) -> Tensor:
        return torch.zeros_like(logprobs, dtype=torch.bool).scatter(
            -1, logprobs.detach().topk(top_k, dim=-1).indices, value=True
        )

    def part(one: Tensor, ref: Tensor) -> Tensor:
        return (one.exp() * (one - ref)).where(likeliest(one), 0.0).sum(-1)

    logprobs = tokens(first, second)
    return TokenKL(
        logprobs=logprobs,
        old_logprobs=logprobs.detach(),
        ref_logprobs=tokens(ref_first, ref_second),
        exact=whole(exact(first, ref_first), exact(second, ref_second)),
        forward=whole(forward(first, ref_first), forward(second, ref_second)),
        top_k=whole(part(first, ref_first), part(second, ref_second)),
        in_top_k=tokens(likeliest(first), likeliest(second)),
    )


def enumerated(**changes: object) -> dict[str, Tensor]:
    """Gradients of every penalty over all 25 completions, weighted by their probability."""
    policy, reference = pair()
    fields = {"penalties": tuple(Penalty), "credit": "sequence", "clip": None, "group_size": None}
    terms = Terms(**(fields | changes))  # type: ignore[arg-type]
    columns = columns_of(policy, reference, PAIRS)
    mask = torch.ones(len(PAIRS), 2, dtype=torch.bool)
    weight = columns.old_logprobs.sum(dim=1).exp()[:, None].expand(-1, 2)
    worth = reward_advantages(terms, columns, mask)
    losses = penalty_losses(terms, columns, weight, worth)
    return every_gradient(gradients(losses, policy), recipe(terms))


def true_gradients() -> tuple[Tensor, Tensor, Tensor]:
    """Of the sequence KL, of its token-local part, and of the token-local forward KL, by autograd."""
    policy, reference = pair()
    first, second = policy.logprobs()
    ref_first, ref_second = (part.detach() for part in reference.logprobs())
    head, tails = exact(first, ref_first), exact(second, ref_second)
    full = head + (first.exp() * tails).sum()
    local = head + (first.exp().detach() * tails).sum()
    other = forward(first, ref_first) + (first.exp().detach() * forward(second, ref_second)).sum()
    return tuple(
        torch.autograd.grad(value, policy.leaf, retain_graph=True)[0][0]
        for value in (full, local, other)
    )  # type: ignore[return-value]


def close(found: Tensor, expected: Tensor) -> bool:
    return bool(torch.allclose(found, expected, atol=1e-12))


def test_the_two_references_are_the_gradients_of_the_sequence_kl_and_its_local_part() -> None:
    found = enumerated()
    full, local, _ = true_gradients()
    assert close(found[FULL], full)
    assert close(found[LOCAL], local)
    assert not close(full, local)


@pytest.mark.parametrize("credit", ["sequence", "reward-to-go"])
def test_every_penalty_has_the_gradient_that_its_nature_says(credit: str) -> None:
    found = enumerated(credit=credit)
    full, local, other = true_gradients()
    expected = {
        "reverse KL of the whole sequence": full,
        "reverse KL, token-local": local,
        "forward KL, token-local": other,
        "forward + reverse KL, token-local": local + other,
        "reverse KL, future terms only": full - local,
    }
    for penalty in Penalty:
        if penalty.nature.gradient in expected:
            assert close(found[penalty.value], expected[penalty.nature.gradient]), penalty
    assert close(found["k1-loss"], torch.zeros_like(full))
    for penalty in ("abs-loss", "abs-reward", "k2-reward", "k3-reward"):
        assert not close(found[penalty], full), penalty
        assert not close(found[penalty], local), penalty


def test_length_mean_pays_each_nat_less() -> None:
    found = enumerated(credit="length-mean")
    full, _, _ = true_gradients()
    assert close(found["k1-reward"], full / 2)  # both tokens are always there
    assert close(found[FULL], full)


def test_a_clip_changes_the_penalties_and_not_the_references() -> None:
    found, free = enumerated(clip=0.5), enumerated()
    assert close(found[FULL], free[FULL])
    assert close(found[LOCAL], free[LOCAL])
    for penalty in ("k1-reward", "exact-loss", "exact-full", "k2-loss"):
        assert not close(found[penalty], free[penalty]), penalty


def test_a_baseline_of_the_others_changes_no_expectation() -> None:
    """Over all pairs of completions, drawn independently: 625 groups of two."""
    policy, reference = pair()
    terms = Terms((Penalty.K1_REWARD, Penalty.EXACT_FULL), "sequence", None, group_size=2)
    groups = torch.tensor(list(itertools.product(range(len(PAIRS)), repeat=2)))
    rows = PAIRS[groups.flatten()]
    columns = columns_of(policy, reference, rows)
    each = columns.old_logprobs.sum(dim=1).view(-1, 2)
    weight = (each.sum(dim=1).exp() / 2).repeat_interleave(2)[:, None].expand(-1, 2)
    worth = reward_advantages(terms, columns, torch.ones(len(rows), 2, dtype=torch.bool))
    losses = penalty_losses(terms, columns, weight, worth)
    found = every_gradient(gradients(losses, policy), recipe(terms))
    full, _, _ = true_gradients()
    assert close(found["k1-reward"], full)
    assert close(found["exact-full"], full)
    assert close(found[FULL], full)


def test_masked_tokens_give_nothing_whatever_stands_there() -> None:
    policy, reference = pair()
    terms = Terms((Penalty.K2_LOSS, Penalty.K1_REWARD), "sequence", None, group_size=None)
    columns = columns_of(policy, reference, PAIRS)
    junk = torch.tensor([0.0, float("inf")], dtype=torch.float64)
    columns = TokenKL(
        columns.logprobs,
        columns.old_logprobs,
        columns.ref_logprobs - junk,
        columns.exact,
        columns.forward,
    )
    mask = torch.tensor([True, False]).expand(len(PAIRS), 2)
    weight = mask / len(PAIRS)
    worth = reward_advantages(terms, columns.masked(mask), mask)
    found = gradients(penalty_losses(terms, columns, weight, worth), policy)
    assert all(torch.isfinite(gradient).all() for gradient in found.values())
    assert all((gradient[V:] == 0).all() for gradient in found.values())
