"""Norm, rotation and gated activation against transformers' own modules, and their gradients against autograd's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor
from transformers.models.llama import modeling_llama

from kltune.trainer.fused.elementwise import gated, rms_norm, rotate

EPSILON = 1e-5


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return values.to(dtype)


def angles(num_tokens: int, width: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    half = drawn(num_tokens, width // 2, seed=5, dtype=torch.float64) * 3
    both = torch.cat([half, half], dim=-1)
    return [both.cos().to(dtype), both.sin().to(dtype)]


def their_norm(inputs: Tensor, weight: Tensor) -> Tensor:
    norm = modeling_llama.LlamaRMSNorm(weight.shape[0], EPSILON)
    norm.weight = torch.nn.Parameter(weight, requires_grad=False)
    return norm(inputs)


def their_rotation(heads_MHd: Tensor, cos_Md: Tensor, sin_Md: Tensor) -> Tensor:
    query = heads_MHd.transpose(0, 1)[None]
    turned, _ = modeling_llama.apply_rotary_pos_emb(query, query, cos_Md[None], sin_Md[None])
    return turned[0].transpose(0, 1)


def their_gate(both_M2I: Tensor) -> Tensor:
    gate, up = both_M2I.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up


def written_out_norm(inputs: Tensor, weight: Tensor) -> Tensor:
    """In the type of ``inputs`` throughout: transformers' norm falls to float32 even for float64."""
    return inputs * (inputs.square().mean(-1, keepdim=True) + EPSILON).rsqrt() * weight


def our_norm(inputs: Tensor, weight: Tensor) -> Tensor:
    return rms_norm(inputs, weight, EPSILON)


def with_gradient(
    function: Callable[..., Tensor], inputs: Tensor, rest: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Output, and the gradient of a fixed sum of it that weighs every element otherwise."""
    leaf = inputs.clone().requires_grad_(True)
    out = function(leaf, *rest)
    pull = drawn(*out.shape, seed=9, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((out.double() * pull).sum(), leaf)
    return out.detach(), gradient


CASES = {
    "norm": (our_norm, their_norm, written_out_norm, (7, 24), [1 + 0.3 * drawn(24, seed=1)]),
    "norm of heads": (our_norm, their_norm, written_out_norm, (7, 3, 12), [drawn(12, seed=1)]),
    "rotation": (rotate, their_rotation, their_rotation, (7, 3, 12), angles(7, 12)),
    "gate": (gated, their_gate, their_gate, (7, 24), []),
}
"""Ours, transformers', the same in float64, the inputs' shape and the rest."""


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_transformers(name: str) -> None:
    ours, theirs, _, shape, rest = CASES[name]
    inputs = drawn(*shape)
    for got, expected in zip(
        with_gradient(ours, inputs, rest), with_gradient(theirs, inputs, rest), strict=True
    ):
        assert got.dtype == expected.dtype
        torch.testing.assert_close(got, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_float64s_to_float32_rounding(name: str) -> None:
    ours, _, exact, shape, rest = CASES[name]
    inputs = drawn(*shape)
    wide = [tensor.double() for tensor in rest]
    for got, expected in zip(
        with_gradient(ours, inputs, rest),
        with_gradient(exact, inputs.double(), wide),
        strict=True,
    ):
        torch.testing.assert_close(got.double(), expected, rtol=1e-6, atol=2e-6)


@pytest.mark.parametrize("name", CASES)
def test_in_bfloat16_both_are_within_its_rounding_and_about_as_near_as_transformers(
    name: str,
) -> None:
    ours, theirs, exact, shape, rest = CASES[name]
    inputs = drawn(*shape, dtype=torch.bfloat16)
    # angles come in the hidden states' type there, weights of a norm in their own
    given = [tensor.bfloat16() for tensor in rest]
    truth = with_gradient(exact, inputs.double(), [tensor.double() for tensor in given])
    found = with_gradient(ours, inputs, given), with_gradient(theirs, inputs, given)
    for got, other, expected in zip(*found, truth, strict=True):
        assert got.dtype == other.dtype == torch.bfloat16
        error, their_error = ((t.double() - expected).norm() for t in (got, other))
        assert error <= 2 * their_error
        assert error <= 2**-7 * expected.norm()


def test_bfloat16_heads_turn_by_float32_angles_in_float32() -> None:
    heads, (cos, sin) = drawn(7, 3, 12, dtype=torch.bfloat16), angles(7, 12)
    got, gradient = with_gradient(rotate, heads, [cos, sin])
    expected, _ = with_gradient(their_rotation, heads.float(), [cos, sin])
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6)
    assert gradient.dtype == torch.bfloat16


def test_in_float64_the_written_gradients_are_numerical_ones() -> None:
    # not the norm: it is float32 inside whatever comes in
    heads = drawn(3, 2, 6, dtype=torch.float64).requires_grad_(True)
    turns = angles(3, 6, torch.float64)
    assert torch.autograd.gradcheck(lambda x: rotate(x, *turns), heads)
    both = drawn(4, 10, dtype=torch.float64).requires_grad_(True)
    assert torch.autograd.gradcheck(gated, both)


@pytest.mark.parametrize("name", CASES)
def test_with_and_without_a_gradient_the_values_are_the_same_bits(name: str) -> None:
    ours, _, _, shape, rest = CASES[name]
    inputs = drawn(*shape)
    with torch.no_grad():
        plain = ours(inputs.clone().requires_grad_(True), *rest)
    assert not plain.requires_grad
    assert torch.equal(plain, with_gradient(ours, inputs, rest)[0])
    assert torch.equal(plain, ours(inputs, *rest))


@pytest.mark.parametrize("name", CASES)
def test_inputs_are_left_as_they_were(name: str) -> None:
    ours, _, _, shape, rest = CASES[name]
    inputs = drawn(*shape)
    before = [tensor.clone() for tensor in (inputs, *rest)]
    with_gradient(ours, inputs, rest)
    ours(inputs, *rest)
    for tensor, kept in zip((inputs, *rest), before, strict=True):
        assert torch.equal(tensor, kept)


def test_a_row_of_zeros_has_a_finite_norm_and_gradient() -> None:
    got, gradient = with_gradient(our_norm, torch.zeros(2, 8), [torch.ones(8)])
    assert not got.any()
    assert torch.isfinite(gradient).all()
    assert gradient.any()


def test_a_rotation_of_a_rotation_by_the_opposite_angle_is_the_start() -> None:
    heads, (cos, sin) = drawn(7, 3, 12), angles(7, 12)
    back = rotate(rotate(heads, cos, sin), cos, -sin)
    torch.testing.assert_close(back, heads, rtol=1e-5, atol=1e-5)


def test_a_slice_that_does_not_lie_in_one_piece_is_turned_right() -> None:
    wide, (cos, sin) = drawn(7, 6, 12), angles(7, 12)
    got, gradient = with_gradient(lambda x: rotate(x[:, 1:5], cos, sin), wide, [])
    expected, their_gradient = with_gradient(
        lambda x: their_rotation(x[:, 1:5], cos, sin), wide, []
    )
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(gradient, their_gradient, rtol=1e-6, atol=1e-6)
    assert not gradient[:, 0].any()
