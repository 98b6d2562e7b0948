"""Where a forward takes its linear layers from: the frozen base, or the base with the adapters of one or more slots.

Three ways to the same numbers: *merged* weights W + (alpha / r) B A, written once per
change of the adapters, cost no more than the base (float32, one slot); the *branch*
computes the adapters' part beside the base's, since a sum in bfloat16 would round the
adapters away, and so that K slots share one product with the base. Shapes: K slots, M
tokens (of each slot), I inputs, O outputs, R rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

Pairs = Sequence[tuple[Tensor, Tensor]]
"""A ``[K, R, I]`` and B ``[K, O, R]`` of each layer that was joined."""


class Linears(Protocol):
    """Every linear layer of a body, by layer and by place within it (qkv, output, gate_up, down)."""

    def __call__(self, layer: int, place: int, inputs: Tensor) -> Tensor:
        """``[..., I] -> [..., O]``."""
        ...

    def plain(self, layer: int, place: int) -> tuple[Tensor, Tensor | None] | None:
        """Weight ``[O, I]`` and bias, where that is all there is to a layer."""
        ...


class BaseLinears:
    """The frozen base, in its own type or the arithmetic's."""

    def __init__(
        self, weights: Sequence[Sequence[Tensor]], biases: Sequence[Sequence[Tensor | None]]
    ) -> None:
        """By layer and place."""
        self._weights, self._biases = weights, biases

    def __call__(self, layer: int, place: int, inputs: Tensor) -> Tensor:
        """The base's output."""
        weight = self._weights[layer][place]
        return F.linear(inputs.to(weight.dtype), weight, self._biases[layer][place])

    def weight(self, layer: int, place: int) -> Tensor:
        """``[O, I]``."""
        return self._weights[layer][place]

    def plain(self, layer: int, place: int) -> tuple[Tensor, Tensor | None] | None:
        """Weight and bias."""
        return self._weights[layer][place], self._biases[layer][place]


class MergedLinears:
    """One slot's merged weights."""

    def __init__(
        self,
        merged: Sequence[Sequence[Tensor]],
        biases: Sequence[Sequence[Tensor | None]],
        adapters: Sequence[Sequence[Pairs]],
        scale: float,
    ) -> None:
        """``merged``: by layer and place, of the very adapters in ``adapters``."""
        self._merged, self._biases = merged, biases
        self._adapters, self._scale = adapters, scale
        self._version = merged[0][0]._version  # pyright: ignore[reportPrivateUsage]

    def __call__(self, layer: int, place: int, inputs: Tensor) -> Tensor:
        """The policy's output; its gradient reaches the inputs and the adapters.

        Raises:
            RuntimeError: the weights were written again for other adapters. Autograd says so of
                what it kept; a layer that is run again for its gradient would read them unseen.
        """
        if self._merged[0][0]._version != self._version:  # pyright: ignore[reportPrivateUsage]
            raise RuntimeError("merged weights have been modified by an inplace operation")
        weight, bias = self._merged[layer][place], self._biases[layer][place]
        if not torch.is_grad_enabled():
            return F.linear(inputs, weight, bias)
        flat = [tensor for pair in self._adapters[layer][place] for tensor in pair]
        return _Merged.apply(inputs, weight, bias, self._scale, *flat)

    def plain(self, layer: int, place: int) -> tuple[Tensor, Tensor | None] | None:
        """Merged weight and bias."""
        return self._merged[layer][place], self._biases[layer][place]


class _Merged(torch.autograd.Function):
    """x W_merged, with the gradients of A and B instead of the merged weight's."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        scale: float,
        *adapters: Tensor,
    ) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(inputs, weight, *adapters)
        ctx.scale = scale
        return F.linear(inputs, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_MO: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        inputs_MI, weight, *adapters = ctx.saved_tensors
        back = grad_MO @ weight if ctx.needs_input_grad[0] else None
        found = _adapter_gradients(inputs_MI, grad_MO, adapters, ctx.scale)[0]
        return back, None, None, None, *found


def _adapter_gradients(
    inputs_MI: Tensor, grad_MO: Tensor, adapters: Sequence[Tensor], scale: float
) -> tuple[list[Tensor], Tensor]:
    """Gradients of each layer's A and B, ``[1, ...]``; and of what goes between them, ``[S, M]`` (scaled), S = ranks in all.

    Every product has the few ranks first: the other way round takes up to five times as long on a CPU.
    """
    matrices_A, matrices_B = adapters[::2], adapters[1::2]
    rank, dtype = matrices_A[0].shape[1], inputs_MI.dtype
    down_SM = torch.cat([a[0] for a in matrices_A]).to(dtype) @ inputs_MI.T
    pulls: list[Tensor] = []
    of_B: list[Tensor] = []
    start = 0
    for down_RM, b_1OR in zip(down_SM.split(rank), matrices_B, strict=True):
        stop = start + b_1OR.shape[1]
        own_MO = grad_MO[:, start:stop]
        pulls.append(b_1OR[0].T.to(dtype) @ own_MO.T)
        of_B.append((down_RM @ own_MO).mul_(scale).T[None].to(b_1OR.dtype))
        start = stop
    pull_SM = torch.cat(pulls).mul_(scale)
    of_A = (pull_SM @ inputs_MI).to(matrices_A[0].dtype).split(rank)
    found: list[Tensor] = []
    for a, b in zip(of_A, of_B, strict=True):
        found += [a[None], b]
    return found, pull_SM


class BranchLinears:
    """The base's output and the adapters' beside it: one slot with gradients, or K slots without."""

    def __init__(
        self,
        base: BaseLinears,
        adapters: Sequence[Sequence[Pairs]],
        scale: float,
        dtype: torch.dtype,
    ) -> None:
        """``adapters``: by layer and place; ``dtype``: of the products."""
        self._base, self._adapters, self._scale, self.dtype = base, adapters, scale, dtype
        self._stacked: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    def __call__(self, layer: int, place: int, inputs: Tensor) -> Tensor:
        """``[M, I]``, or ``[K x M, I]`` of K slots in equal blocks."""
        inputs = inputs.to(self.dtype)
        pairs = self._adapters[layer][place]
        if torch.is_grad_enabled() and any(a.requires_grad for a, _ in pairs):
            flat = [tensor for pair in pairs for tensor in pair]
            return _Branch.apply(inputs, self._base, (layer, place), self._scale, *flat)
        outputs = self._base(layer, place, inputs)
        a_KIS, b_KSO = self._stack(layer, place)
        num_slots = a_KIS.shape[0]
        if num_slots == 1:  # plain products are faster than batches of one, in bfloat16 many times
            return outputs.addmm_(inputs @ a_KIS[0], b_KSO[0], alpha=self._scale)
        down = torch.bmm(inputs.view(num_slots, -1, inputs.shape[-1]), a_KIS)
        by_slot = outputs.view(num_slots, -1, outputs.shape[-1])
        return by_slot.baddbmm_(down, b_KSO, alpha=self._scale).view(outputs.shape)

    def plain(self, layer: int, place: int) -> tuple[Tensor, Tensor | None] | None:  # noqa: ARG002
        """None: there are adapters beside."""
        return None

    @torch.no_grad()
    def refresh(self, adapters: Sequence[Sequence[Pairs]]) -> None:
        """Take these adapters, of the same shapes, in the buffers that a captured graph reads."""
        self._adapters = adapters
        for layer, places in enumerate(adapters):
            for place in range(len(places)):
                self._fill(layer, place, *self._stack(layer, place))

    def _stack(self, layer: int, place: int) -> tuple[Tensor, Tensor]:
        """A's of the joined layers beside each other ``[K, I, S]``, B's on a diagonal ``[K, S, O]``, S = ranks in all."""
        found = self._stacked.get((layer, place))
        if found is None:
            pairs = self._adapters[layer][place]
            num_slots, rank, num_in = pairs[0][0].shape
            ranks, outputs = rank * len(pairs), sum(b.shape[1] for _, b in pairs)
            like = pairs[0][0].detach()
            a_KIS = like.new_zeros(num_slots, num_in, ranks, dtype=self.dtype)
            b_KSO = like.new_zeros(num_slots, ranks, outputs, dtype=self.dtype)
            found = self._stacked[layer, place] = a_KIS, b_KSO
            self._fill(layer, place, a_KIS, b_KSO)
        return found

    def _fill(self, layer: int, place: int, a_KIS: Tensor, b_KSO: Tensor) -> None:
        rank, start = self._adapters[layer][place][0][0].shape[1], 0
        for index, (a, b) in enumerate(self._adapters[layer][place]):
            own, stop = slice(index * rank, (index + 1) * rank), start + b.shape[1]
            a_KIS[:, :, own] = a.detach().transpose(1, 2)
            b_KSO[:, own, start:stop] = b.detach().transpose(1, 2)
            start = stop


class _Branch(torch.autograd.Function):
    """x W + (alpha / r) (x A) B of one slot; products in the type of the inputs, gradients of the adapters in theirs."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        base: BaseLinears,
        where: tuple[int, int],
        scale: float,
        *adapters: Tensor,
    ) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        outputs = base(*where, inputs)
        start = 0
        for a, b in zip(adapters[::2], adapters[1::2], strict=True):
            down = inputs @ a[0].to(inputs.dtype).T
            stop = start + b.shape[1]
            outputs[:, start:stop].addmm_(down, b[0].to(inputs.dtype).T, alpha=scale)
            start = stop
        ctx.save_for_backward(inputs, base.weight(*where), *adapters)
        ctx.scale = scale
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_MO: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        inputs_MI, weight, *adapters = ctx.saved_tensors
        found, pull_SM = _adapter_gradients(inputs_MI, grad_MO, adapters, ctx.scale)
        back = None
        if ctx.needs_input_grad[0]:
            matrix_SI = torch.cat([a[0] for a in adapters[::2]]).to(grad_MO.dtype)
            back = (grad_MO @ weight).addmm_(pull_SM.T, matrix_SI)
        return back, None, None, None, *found
