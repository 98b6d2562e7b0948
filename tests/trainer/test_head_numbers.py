"""What the chunked head does at the edges of arithmetic: zero probabilities, bf16, NaN, large logits."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from head_case import ALL, CHUNKS, D, M, V, case, columns_of, loss, plain, set_chunks
from torch import Tensor

from kltune.trainer.head import GRADIENTS, Head, HeadRule, TokenColumns, token_columns


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
