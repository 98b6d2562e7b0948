"""The element-wise parts of a block, each with its gradient written out: norm, rotation, gated activation.

Equal to what transformers computes step by step (tested), with fewer passes over memory.
Weights of the norms are frozen here and get no gradient. Shapes: M tokens, D width,
H heads, d head width, I inner width.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK = 256
"""Rows that are taken through several passes at once on a CPU, so that what is between them stays in its cache."""


def rms_norm(inputs_MD: Tensor, weight_D: Tensor, epsilon: float) -> Tensor:
    """``x / rms(x) * weight`` over the last dimension (1910.07467), the root mean square in float32."""
    if torch.is_grad_enabled() and inputs_MD.requires_grad:
        return _RMSNorm.apply(inputs_MD, weight_D, epsilon)
    return _normed(inputs_MD, weight_D, epsilon)[0]


def _normed(inputs: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Normed inputs and 1 / rms, ``[..., 1]`` float32."""
    wide = inputs.float()  # transformers normalises in float32 whatever the model's type
    inverse = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    inverse = inverse.square_().div_(inputs.shape[-1]).add_(epsilon).rsqrt_()
    normed = (wide * inverse).to(inputs.dtype)
    return (normed * weight if normed is inputs else normed.mul_(weight)), inverse


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, epsilon: float) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        normed, inverse = _normed(inputs, weight, epsilon)
        ctx.save_for_backward(inputs, weight, inverse)
        return normed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        inputs, weight, inverse = ctx.saved_tensors
        wide = inputs.float()
        scaled = (grad * weight).float()
        pull = (scaled * wide).sum(-1, keepdim=True)
        pull = pull.mul_(inverse.pow(3)).div_(inputs.shape[-1])
        back = (scaled * inverse).addcmul_(wide, pull, value=-1)
        return back.to(inputs.dtype), None, None


def rotate(heads_MHd: Tensor, cos_Md: Tensor, sin_Md: Tensor) -> Tensor:
    """Rotary positions (2104.09864), halves of a head paired as in Llama: a new tensor."""
    if torch.is_grad_enabled() and heads_MHd.requires_grad:
        return _Rotate.apply(heads_MHd, cos_Md, sin_Md)
    return _rotated(heads_MHd, cos_Md, sin_Md)


def _rotated(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = heads.shape[-1] // 2
    cos, sin = cos.unsqueeze(-2), sin.unsqueeze(-2)
    out = heads * cos
    out[..., :half].addcmul_(heads[..., half:], sin[..., :half], value=-1)
    out[..., half:].addcmul_(heads[..., :half], sin[..., half:])
    return out


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(cos, sin)
        return _rotated(heads, cos, sin)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        cos, sin = ctx.saved_tensors
        return _rotated(grad, cos, -sin), None, None  # a rotation's transpose turns back


def gated(both_M2I: Tensor) -> Tensor:
    """``silu(gate) * up`` of gate and up side by side (SwiGLU, 2002.05202): ``[M, 2I] -> [M, I]``."""
    if torch.is_grad_enabled() and both_M2I.requires_grad:
        return _Gated.apply(both_M2I)
    return _gated(both_M2I)


def _gated(both: Tensor) -> Tensor:
    if len(both) <= BLOCK or both.is_cuda:
        gate, up = both.chunk(2, dim=-1)
        return F.silu(gate).mul_(up)
    out = both.new_empty(len(both), both.shape[-1] // 2)
    for part, block in zip(both.split(BLOCK), out.split(BLOCK), strict=True):
        gate, up = part.chunk(2, dim=-1)
        torch.mul(F.silu(gate), up, out=block)
    return out


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, both: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(both)
        return _gated(both)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        (both,) = ctx.saved_tensors
        back = torch.empty_like(both)
        size = len(both) if both.is_cuda else BLOCK
        for part, own, out in zip(
            both.split(size), grad.split(size), back.split(size), strict=True
        ):
            gate, up = part.chunk(2, dim=-1)
            of_gate, of_up = out.chunk(2, dim=-1)
            slope = torch.sigmoid(gate)
            silu = torch.mul(gate, slope, out=of_up)
            # d silu = s + silu (1 - s), s the sigmoid
            slope.addcmul_(silu, slope, value=-1).add_(silu)
            torch.mul(slope, up, out=of_gate).mul_(own)
            silu.mul_(own)
        return back
