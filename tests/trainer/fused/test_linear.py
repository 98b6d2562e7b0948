"""Base, merged weights and branch against the layers written out, and their gradients against autograd's."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from kltune.trainer.fused.linear import BaseLinears, BranchLinears, Linears, MergedLinears

SCALE, RANK, WIDTH = 1.7, 3, 10
OUTPUTS = (8, 4, 4)
"""Of the layers that are joined."""
KINDS = ["merged", "branch"]


@dataclass(frozen=True)
class Case:
    """One joined layer with the adapters of some slots."""

    weight_OI: Tensor
    bias_O: Tensor | None
    pairs: list[tuple[Tensor, Tensor]]

    @property
    def leaves(self) -> list[Tensor]:
        return [tensor for pair in self.pairs for tensor in pair]

    def base(self) -> BaseLinears:
        return BaseLinears([[self.weight_OI]], [[self.bias_O]])

    def linears(self, kind: str) -> Linears:
        if kind == "branch":
            dtype = self.weight_OI.dtype
            return BranchLinears(self.base(), [[self.pairs]], SCALE, dtype)
        with torch.no_grad():
            merged = self.weight_OI + self.added(0)
        return MergedLinears([[merged]], [[self.bias_O]], [[self.pairs]], SCALE)

    def added(self, slot: int) -> Tensor:
        """What the adapters add to the weight."""
        return SCALE * torch.cat([b[slot] @ a[slot] for a, b in self.pairs])

    def written_out(self, inputs: Tensor, slot: int = 0) -> Tensor:
        return torch.nn.functional.linear(inputs, self.weight_OI + self.added(slot), self.bias_O)


def case(num_slots: int = 1, *, has_bias: bool = True, dtype: torch.dtype = torch.float64) -> Case:
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    return Case(
        drawn(sum(OUTPUTS), WIDTH),
        drawn(sum(OUTPUTS)) if has_bias else None,
        [
            (
                drawn(num_slots, RANK, WIDTH).requires_grad_(True),
                drawn(num_slots, size, RANK).requires_grad_(True),
            )
            for size in OUTPUTS
        ],
    )


def inputs_of(rows: int = 6, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(rows, WIDTH, generator=generator, dtype=torch.float64).to(dtype)


def pulled(out: Tensor) -> Tensor:
    weights = torch.randn(
        out.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64
    )
    return (out * weights.to(out.dtype)).sum()


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients_are_those_of_the_layers_written_out(
    kind: str, has_bias: bool
) -> None:
    given = case(has_bias=has_bias)
    inputs = inputs_of().requires_grad_(True)
    leaves = [inputs, *given.leaves]
    got, wanted = given.linears(kind)(0, 0, inputs), given.written_out(inputs)
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)
    for one, other in zip(
        torch.autograd.grad(pulled(got), leaves),
        torch.autograd.grad(pulled(wanted), leaves),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_without_a_gradient_give_the_adapters_theirs(kind: str) -> None:
    given = case()
    found = torch.autograd.grad(pulled(given.linears(kind)(0, 0, inputs_of())), given.leaves)
    expected = torch.autograd.grad(pulled(given.written_out(inputs_of())), given.leaves)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_that_is_kept_gives_its_gradient_twice(kind: str) -> None:
    given = case()
    loss = pulled(given.linears(kind)(0, 0, inputs_of().requires_grad_(True)))
    first = torch.autograd.grad(loss, given.leaves, retain_graph=True)
    again = torch.autograd.grad(loss, given.leaves)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_gradient_the_values_are_the_same(kind: str) -> None:
    given = case()
    with_graph = given.linears(kind)(0, 0, inputs_of())
    with torch.no_grad():
        plain = given.linears(kind)(0, 0, inputs_of())
    assert not plain.requires_grad
    torch.testing.assert_close(plain, with_graph.detach(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("num_slots", [1, 2, 3])
def test_a_branch_of_several_slots_gives_each_block_of_rows_its_own_adapters(
    num_slots: int,
) -> None:
    given = case(num_slots)
    inputs = inputs_of(num_slots * 2)
    with torch.no_grad():
        got = given.linears("branch")(0, 0, inputs)
        wanted = [given.written_out(rows, k) for k, rows in enumerate(inputs.split(2))]
    torch.testing.assert_close(got, torch.cat(wanted), rtol=1e-10, atol=1e-10)


def test_the_base_alone_is_the_layer_in_the_type_of_its_weight() -> None:
    given = case(dtype=torch.bfloat16)
    out = given.base()(0, 0, inputs_of(dtype=torch.float32))
    assert out.dtype == torch.bfloat16
    expected = torch.nn.functional.linear(
        inputs_of(dtype=torch.bfloat16), given.weight_OI, given.bias_O
    )
    assert torch.equal(out, expected)


def test_fresh_adapters_change_not_one_bit_in_any_way_and_any_type() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        given = case(dtype=dtype)
        with torch.no_grad():
            for _, b in given.pairs:
                b.zero_()
        inputs = inputs_of(dtype=dtype)
        base = given.base()(0, 0, inputs)
        for kind in KINDS:
            assert torch.equal(given.linears(kind)(0, 0, inputs).detach(), base)
            with torch.no_grad():
                assert torch.equal(given.linears(kind)(0, 0, inputs), base)


def test_a_branch_in_bfloat16_keeps_what_the_sum_of_weights_would_round_away() -> None:
    given = case(dtype=torch.bfloat16, has_bias=False)
    small = [(a.detach().float(), 1e-4 * b.detach().float()) for a, b in given.pairs]
    leaves = [t.requires_grad_(True) for pair in small for t in pair]
    branch = BranchLinears(given.base(), [[small]], SCALE, torch.bfloat16)
    merged = given.weight_OI + SCALE * torch.cat([b[0] @ a[0] for a, b in small]).bfloat16()
    share = (merged == given.weight_OI).float().mean()
    assert share > 0.9, "most weights are what they were: the case must round"
    # an input that the base takes to 0 shows the adapters alone
    inputs = torch.zeros(1, WIDTH)
    assert torch.equal(branch(0, 0, inputs).detach(), torch.zeros(1, sum(OUTPUTS)).bfloat16())
    inputs = inputs_of(4, torch.float32).requires_grad_(True)
    out = branch(0, 0, inputs)
    assert out.dtype == torch.bfloat16
    found = torch.autograd.grad(pulled(out.float()), leaves)
    exact = Case(given.weight_OI.double(), None, [(a.double(), b.double()) for a, b in small])
    wanted = torch.autograd.grad(pulled(exact.written_out(inputs.double())), leaves)
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == torch.float32
        assert float((one - other).norm() / other.norm()) < 0.02
