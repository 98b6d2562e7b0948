"""The chunked head with its written-out gradient against autograd of the plain formulas over full logits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from head_case import ALL, CHUNKS, SUBSETS, Case, D, M, V, case, columns_of, loss, plain, set_chunks
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from kltune.trainer.head import GRADIENTS, Head, HeadRule


@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("has_grad", [True, False])
def test_every_column_equals_the_plain_formula_however_it_is_cut(
    monkeypatch: pytest.MonkeyPatch, chunks: tuple[int, int], has_grad: bool
) -> None:
    set_chunks(monkeypatch, chunks)
    found = case(has_grad=has_grad)
    got, expected = columns_of(found.columns()), columns_of(plain(found))
    assert 0 < int(expected["in_top_k_M"].sum()) < M
    for name, value in got.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-12, atol=1e-12, msg=name)


@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("names", SUBSETS, ids=lambda names: "-".join(sorted(names)))
def test_every_gradient_equals_autograds_of_the_plain_formula_however_it_is_cut(
    monkeypatch: pytest.MonkeyPatch, chunks: tuple[int, int], names: frozenset[str]
) -> None:
    set_chunks(monkeypatch, chunks)
    found = case()
    got = found.columns(replace(ALL, gradients=names))
    for name in ("reference", *GRADIENTS):
        assert getattr(got, f"{name}_M").requires_grad is (name in names), name
    actual = torch.autograd.grad(loss(got, names), found.leaves())
    expected = torch.autograd.grad(loss(plain(found), names), found.leaves())
    for ours, theirs in zip(actual, expected, strict=True):
        assert float(theirs.norm()) > 0.1
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("chunks", CHUNKS)
def test_gradients_are_the_difference_quotients(
    monkeypatch: pytest.MonkeyPatch, chunks: tuple[int, int]
) -> None:
    set_chunks(monkeypatch, chunks)
    found = case()

    def run(hidden: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
        got = replace(found, policy_MD=hidden, policy_head=Head(weight, bias)).columns()
        return tuple(getattr(got, f"{name}_M") for name in ("policy", *GRADIENTS))

    assert torch.autograd.gradcheck(run, tuple(found.leaves()), fast_mode=True)


@pytest.mark.parametrize("wanted", [(True, False), (False, True), (True, True)])
def test_only_what_requires_a_gradient_gets_one(wanted: tuple[bool, bool]) -> None:
    found = case(has_grad=False)
    found.policy_MD.requires_grad_(wanted[0])
    found.policy_head.weight.requires_grad_(wanted[1])
    found.ref_MD.requires_grad_(True)
    loss(found.columns(), frozenset(GRADIENTS)).backward()
    assert (found.policy_MD.grad is not None, found.policy_head.weight.grad is not None) == wanted
    assert found.policy_head.bias is not None
    assert found.policy_head.bias.grad is found.ref_MD.grad is None
    for leaf in found.leaves():
        (theirs,) = torch.autograd.grad(
            loss(plain(found), frozenset(GRADIENTS)), [leaf], retain_graph=True
        )
        torch.testing.assert_close(leaf.grad, theirs, rtol=1e-12, atol=1e-12)


def test_one_weight_for_both_heads_gets_the_policys_gradient_alone() -> None:
    found = case()
    found = replace(found, ref_head=found.policy_head)
    got = torch.autograd.grad(loss(found.columns(), frozenset(GRADIENTS)), found.leaves())
    apart = Head(found.policy_head.weight.detach(), found.policy_head.bias.detach())  # pyright: ignore[reportOptionalMemberAccess]
    expected = torch.autograd.grad(
        loss(plain(replace(found, ref_head=apart)), frozenset(GRADIENTS)), found.leaves()
    )
    for ours, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


class LargestTensor(TorchDispatchMode):
    """Sees every tensor that an operation gives back."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        got = func(*args, **(kwargs or {}))
        for tensor in got if isinstance(got, tuple | list) else (got,):
            if isinstance(tensor, Tensor):
                self.elements = max(self.elements, tensor.numel())
        return got


@pytest.mark.parametrize("chunks", CHUNKS)
def test_full_logits_are_neither_made_nor_saved_unless_they_fit_one_chunk(
    monkeypatch: pytest.MonkeyPatch, chunks: tuple[int, int]
) -> None:
    set_chunks(monkeypatch, chunks)
    found, saved, largest = case(), list[int](), LargestTensor()

    def keep(tensor: Tensor) -> Tensor:
        saved.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        got = found.columns()
    with largest:
        found.columns()
        torch.autograd.grad(loss(got, frozenset(GRADIENTS)), found.leaves())
    is_whole = chunks == CHUNKS[0]
    assert (M * V in saved) is is_whole
    assert (largest.elements >= M * V) is is_whole
    # Beside inputs (the weight has V x D) nothing larger than a chunk, or k numbers a token.
    assert is_whole or max(saved) == V * D
    assert is_whole or largest.elements == max(V * D, chunks[0])


@pytest.mark.parametrize("chunks", [CHUNKS[0], CHUNKS[3]])
@pytest.mark.parametrize("top_k", [1, 4, V, V + 5])
def test_top_k_and_tail_have_the_value_and_the_gradient_of_the_exact_kl_on_policy(
    monkeypatch: pytest.MonkeyPatch, chunks: tuple[int, int], top_k: int
) -> None:
    """Enumerated over every next token of one state; the tail's own score makes its (u + 1) s."""
    set_chunks(monkeypatch, chunks)
    found = case()
    every = Case(
        found.policy_MD[:1].expand(V, D),
        found.ref_MD[:1].expand(V, D),
        torch.arange(V),
        found.policy_head,
        found.ref_head,
    )
    got = every.columns(replace(ALL, top_k=top_k, gradients=frozenset({"exact", "top_k"})))
    assert got.top_k_M is not None
    assert got.in_top_k_M is not None
    assert int(got.in_top_k_M.sum()) == min(top_k, V)
    p = got.policy_M.detach().exp()
    ratio = (got.policy_M - got.policy_M.detach()).exp()
    tail = (ratio * (got.policy_M - got.reference_M)).where(~got.in_top_k_M, 0.0)
    estimated = (p * (got.top_k_M + tail)).sum()
    torch.testing.assert_close(estimated, got.exact_M[0], rtol=1e-12, atol=1e-12)
    ours = torch.autograd.grad(estimated, found.leaves(), retain_graph=True)
    exact = torch.autograd.grad(got.exact_M[0], found.leaves())
    for a, b in zip(ours, exact, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)
    if top_k >= V:
        torch.testing.assert_close(got.top_k_M, got.exact_M, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("chunks", CHUNKS)
def test_no_tokens_give_no_numbers_and_zero_gradients(
    monkeypatch: pytest.MonkeyPatch, chunks: tuple[int, int]
) -> None:
    set_chunks(monkeypatch, chunks)
    found = case()
    empty = replace(
        found,
        policy_MD=found.policy_MD[:0],
        ref_MD=found.ref_MD[:0],
        targets_M=found.targets_M[:0],
    )
    got = empty.columns()
    assert all(values.shape == (0,) for values in columns_of(got).values())
    total = got.policy_M.sum() + got.exact_M.sum()
    (grad,) = torch.autograd.grad(total, [found.policy_head.weight])
    assert not grad.any()


def test_without_top_k_there_are_no_such_columns() -> None:
    got = case().columns(HeadRule(1.0, None, frozenset({"exact"}), None))
    assert got.top_k_M is got.in_top_k_M is None


def test_a_backward_pass_can_be_repeated() -> None:
    found = case()
    total = loss(found.columns(), frozenset(GRADIENTS))
    first = torch.autograd.grad(total, found.leaves(), retain_graph=True)
    second = torch.autograd.grad(total, found.leaves())
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"gradients": frozenset({"policy"})}, "no such column with a gradient: policy"),
        ({"top_k": None}, "needs a top_k"),
        ({"top_k": 0}, "at least 1"),
    ],
)
def test_a_rule_that_cannot_be_kept_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(ALL, **fields)
