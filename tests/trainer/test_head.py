"""The chunked head with its written-out gradient against autograd of the plain formulas over full logits."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

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


@pytest.mark.parametrize("chunks", CHUNKS[:4])
def test_a_forbidden_token_adds_nothing_whatever_the_reference_says(
    monkeypatch: pytest.MonkeyPatch, chunks: tuple[int, int]
) -> None:
    """Field case A8: pi = [.6, .4, 0], ref = [.5, .5, 0] has the KL 0.0201355."""
    set_chunks(monkeypatch, chunks if chunks[0] > 100 else (2, 1))
    policy = torch.tensor([0.6, 0.4, 0.0]).log().double()
    for at_forbidden in (0.0, 0.3):
        reference = torch.tensor([0.5, 0.5, 0.0]) * (1 - at_forbidden)
        reference[2] = at_forbidden
        bias = policy.clone().requires_grad_(True)
        hidden = torch.ones(1, 1, dtype=torch.float64)
        zero = torch.zeros(3, 1, dtype=torch.float64)
        got = token_columns(
            hidden,
            hidden,
            torch.tensor([0]),
            Head(zero, bias),
            Head(zero, reference.log().double()),
            HeadRule(1.0, 3, frozenset({"exact", "entropy", "top_k"}), None),
        )
        p = torch.tensor([0.6, 0.4], dtype=torch.float64)
        u = p.log() - reference[:2].double().log()
        kl, entropy = (p * u).sum(), -(p * p.log()).sum()
        assert float(got.exact_M[0].detach()) == pytest.approx(float(kl), abs=1e-6)
        assert got.top_k_M is not None
        assert float(got.top_k_M[0].detach()) == pytest.approx(float(kl), abs=1e-6)
        assert float(got.entropy_M[0].detach()) == pytest.approx(float(entropy), abs=1e-6)
        if at_forbidden == 0:
            assert float(got.exact_M[0].detach()) == pytest.approx(0.0201355, abs=1e-6)
            assert float(got.forward_M[0]) == pytest.approx(0.0204110, abs=1e-6)
        else:
            assert float(got.forward_M[0]) == torch.inf
        for column, slope in (
            (got.exact_M, p * (u - kl)),
            (got.entropy_M, -p * (p.log() + entropy)),
        ):
            (grad,) = torch.autograd.grad(column.sum(), bias, retain_graph=True)
            expected = torch.cat([slope, torch.zeros(1, dtype=torch.float64)])
            torch.testing.assert_close(grad, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("chunks", [(16_000_000, 32), (4, 2)])
def test_bfloat16_logits_have_a_floor_and_the_log_softmax_adds_none(
    monkeypatch: pytest.MonkeyPatch, chunks: tuple[int, int]
) -> None:
    """Field case A46: 10.03 and 10.00 both round to 10.0 in bf16, so 0.0149 nats are lost."""
    set_chunks(monkeypatch, chunks)
    weight = torch.tensor([[10.03], [10.00], [-50.0]])
    hidden, targets = torch.ones(1, 1), torch.tensor([0])
    values = {
        dtype: token_columns(
            hidden, hidden, targets, Head(weight, None), Head(weight, None),
            HeadRule(1.0, None, frozenset(), dtype),
        )
        for dtype in (None, torch.bfloat16)
    }  # fmt: skip
    exact, rounded = (float(values[dtype].policy_M) for dtype in (None, torch.bfloat16))
    assert exact - rounded == pytest.approx(0.0149, abs=1e-4)
    assert rounded == pytest.approx(-0.693147, abs=1e-6), "float32, not bf16's -0.6914"
    assert values[torch.bfloat16].policy_M.dtype == torch.float32


@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_the_kl_of_equal_models_is_exactly_zero(
    monkeypatch: pytest.MonkeyPatch, chunks: tuple[int, int], dtype: torch.dtype | None
) -> None:
    set_chunks(monkeypatch, chunks)
    found = case()
    hidden = 5 * found.policy_MD.detach().float()
    head = Head(found.policy_head.weight.detach().float(), None)
    rule = replace(ALL, matmul_dtype=dtype)
    got = token_columns(hidden, hidden.clone(), found.targets_M, head, head, rule)
    other = Head(head.weight.clone(), None)
    again = token_columns(hidden, hidden.clone(), found.targets_M, head, other, rule)
    for columns in (got, again):
        assert columns.top_k_M is not None
        for values in (columns.exact_M, columns.forward_M, columns.top_k_M):
            assert not values.any()
        assert torch.equal(columns.policy_M, columns.reference_M)
    assert got.entropy_M.any()


@pytest.mark.parametrize("storage", [torch.float32, torch.bfloat16])
def test_mixed_precision_is_what_autocast_does(storage: torch.dtype) -> None:
    found = case(has_grad=False)
    hidden = found.policy_MD.float().requires_grad_(True)
    head = torch.nn.Linear(D, V).requires_grad_(False)
    head.weight.copy_(found.policy_head.weight)
    head.to(storage).requires_grad_(True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = head(hidden)
    log_p = (logits.float() / 0.7).log_softmax(-1)
    expected = log_p.gather(1, found.targets_M[:, None])[:, 0]
    got = token_columns(
        hidden, hidden.detach(), found.targets_M,
        Head(head.weight, head.bias), Head(head.weight, head.bias),
        HeadRule(0.7, None, frozenset(), torch.bfloat16),
    )  # fmt: skip
    assert torch.equal(got.policy_M, expected)
    leaves = [hidden, head.weight, head.bias]
    ours = torch.autograd.grad(got.policy_M.sum(), leaves)
    theirs = torch.autograd.grad(expected.sum(), leaves)
    for a, b, leaf in zip(ours, theirs, leaves, strict=True):
        assert a.dtype == leaf.dtype
        torch.testing.assert_close(a, b, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_non_finite_token_stays_alone_and_masked_leaves_no_trace(
    monkeypatch: pytest.MonkeyPatch, chunks: tuple[int, int], bad: float
) -> None:
    set_chunks(monkeypatch, chunks)
    found, clean = case(), columns_of(case().columns())
    with torch.no_grad():
        found.policy_MD[4] = bad
    others = torch.arange(M) != 4
    got = found.columns()
    for name, values in columns_of(got).items():
        torch.testing.assert_close(values[others], clean[name][others], rtol=1e-12, atol=1e-12)
    for values in (got.policy_M, got.exact_M, got.forward_M, got.entropy_M):
        assert bool(values[4].isnan())
    for keep_bad in (True, False):

        def kept(columns: TokenColumns, keep_bad: bool = keep_bad) -> Tensor:
            masked = {
                name: values.where(others | keep_bad, 0.0)
                for name, values in columns_of(columns).items()
            }
            return loss(TokenColumns(**masked), frozenset(GRADIENTS))

        actual = torch.autograd.grad(kept(got), found.leaves(), retain_graph=True)
        if keep_bad:
            assert bool(actual[0][4].isnan().all())
            assert bool(actual[0][others].isfinite().all())
        else:
            reference = case()
            expected = torch.autograd.grad(
                loss(
                    TokenColumns(**{
                        name: values.where(others, 0.0)
                        for name, values in columns_of(plain(reference)).items()
                    }),
                    frozenset(GRADIENTS),
                ),
                reference.leaves(),
            )  # fmt: skip
            for ours, theirs in zip(actual, expected, strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


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


def test_large_logits_lose_no_more_than_a_log_softmax_does(monkeypatch: pytest.MonkeyPatch) -> None:
    found = case(has_grad=False)
    biased = Head(found.policy_head.weight.float(), found.policy_head.bias.float() - 1e4)  # pyright: ignore[reportOptionalMemberAccess]
    narrow = replace(
        found, policy_MD=found.policy_MD.float(), ref_MD=found.ref_MD.float(),
        policy_head=biased, ref_head=Head(found.ref_head.weight.float(), None),
    )  # fmt: skip
    whole = narrow.columns()
    set_chunks(monkeypatch, (15, 3))
    cut = narrow.columns()
    for name, values in columns_of(cut).items():
        torch.testing.assert_close(values, getattr(whole, name), rtol=1e-5, atol=1e-5, msg=name)


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
