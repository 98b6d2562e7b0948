"""Linear layers that carry K adapters: one base matmul for all rows, the adapter part batched over slots.

A batch is K equal blocks of rows, block k belonging to the k-th active slot. LoRA after
2106.09685: y = W x + (alpha / r) B A x, A uniform like PEFT's, B zero, so a fresh
adapter changes nothing, not even the last bit. Shapes: K active slots, R rank, D inputs,
O outputs, P parameters of one adapter.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from kltune.spec.model import AdaptersSpec
from kltune.trainer.adapted_layers import find_targets, size_of
from kltune.trainer.keyed import Purpose, generator


@dataclass(frozen=True, slots=True)
class Target:
    """A linear layer that gets adapters."""

    name: str
    num_in: int
    num_out: int


class AdapterView:
    """The adapters of some slots as autograd leaves over one flat block, with gradients in another."""

    def __init__(self, stack: AdapterStack, flat_KP: Tensor, grad_KP: Tensor) -> None:
        """Cut ``flat_KP`` and ``grad_KP`` into one A and one B per target."""
        self.flat_KP, self.grad_KP = flat_KP, grad_KP
        num_slots = flat_KP.shape[0]
        shapes = [
            shape
            for target in stack.targets
            for shape in ((stack.rank, target.num_in), (target.num_out, stack.rank))
        ]
        sizes = [rows * columns for rows, columns in shapes]

        def cut(block_KP: Tensor) -> list[Tensor]:
            pieces = block_KP.split(sizes, dim=1)
            return [piece.view(num_slots, *s) for piece, s in zip(pieces, shapes, strict=True)]

        self._leaves = [piece.detach().requires_grad_(True) for piece in cut(flat_KP)]
        self._gradients = cut(grad_KP)
        self.pairs = list(zip(self._leaves[::2], self._leaves[1::2], strict=True))

    @property
    def num_slots(self) -> int:
        """K of this view."""
        return self.flat_KP.shape[0]

    def add_gradients(self, loss: Tensor, *, retain_graph: bool = False) -> None:
        """Add the gradient of ``loss`` to ``grad_KP``; ``retain_graph``: another loss of the same graph follows."""
        found = torch.autograd.grad(loss, self._leaves, retain_graph=retain_graph)
        for kept, new in zip(self._gradients, found, strict=True):
            kept.add_(new)


class AdapterStack:
    """The weights of every slot's adapter, one flat row per slot."""

    def __init__(
        self,
        targets: Sequence[Target],
        num_slots: int,
        rank: int,
        alpha: int,
        device: torch.device,
    ) -> None:
        """All adapters zero; :meth:`reset` starts one."""
        self.targets = tuple(targets)
        self.rank, self.scale = rank, alpha / rank
        self.num_parameters = sum(rank * (t.num_in + t.num_out) for t in targets)
        self.flat_KP = torch.zeros(num_slots, self.num_parameters, device=device)
        self.grad_KP = torch.zeros(num_slots, self.num_parameters, device=device)
        self._ranges: dict[tuple[int, int], AdapterView] = {}
        self.active: AdapterView | None = None

    def reset(self, slot: int, seed: int) -> None:
        """Start the slot's adapter: A uniform in +-1/sqrt(inputs), keyed by the trial's seed; B zero."""
        self.flat_KP[slot].zero_()
        start = 0
        for index, target in enumerate(self.targets):
            size = self.rank * target.num_in
            drawn = generator(seed, Purpose.ADAPTER, row=index).random(size, dtype="float32")
            bound = target.num_in**-0.5
            values = torch.from_numpy(drawn * (2 * bound) - bound)
            self.flat_KP[slot, start : start + size] = values.to(self.flat_KP.device)
            start += size + target.num_out * self.rank

    def clear(self, slot: int) -> None:
        """Zero a slot, so that nothing of an ended trial stays."""
        self.flat_KP[slot].zero_()
        self.grad_KP[slot].zero_()

    def copy_row(self, source: int, target: int, mixture: float = 1.0) -> None:
        """``target = mixture x source + (1 - mixture) x target``; gradients stay."""
        mix_rows(self.flat_KP, source, target, mixture)

    def view(self, slots: Sequence[int]) -> AdapterView:
        """The adapters of ``slots``; a range in order shares the storage, any other choice is a copy.

        Gradients of a copy are brought home by :meth:`collect`.
        """
        found = self._range(slots)
        if found is None:
            rows = torch.as_tensor(list(slots), device=self.flat_KP.device)
            flat_KP = self.flat_KP.index_select(0, rows)
            return AdapterView(self, flat_KP, torch.zeros_like(flat_KP))
        if found not in self._ranges:
            rows = slice(*found)
            self._ranges[found] = AdapterView(self, self.flat_KP[rows], self.grad_KP[rows])
        return self._ranges[found]

    def _range(self, slots: Sequence[int]) -> tuple[int, int] | None:
        """First row and end of ``slots``, if they are a range of this stack in ascending order."""
        start = slots[0] if slots else 0
        end = start + len(slots)
        is_range = 0 <= start < end <= self.flat_KP.shape[0] and list(slots) == list(
            range(start, end)
        )
        return (start, end) if is_range else None

    def collect(self, view: AdapterView, slots: Sequence[int]) -> None:
        """Copy the gradients of a view into the storage rows of its slots; one that shares them has nothing to copy."""
        if any(view is shared for shared in self._ranges.values()):
            return
        for row, slot in enumerate(slots):
            self.grad_KP[slot].copy_(view.grad_KP[row])

    @contextmanager
    def use(self, view: AdapterView | None) -> Generator[None]:
        """Run forwards with these adapters; None: adapters off, the reference."""
        before, self.active = self.active, view
        try:
            yield
        finally:
            self.active = before

    def tensors(self, slot: int) -> dict[str, Tensor]:
        """The slot's adapter by PEFT's parameter names: ``NAME.lora_A.weight [R, D]``, ``.lora_B.weight [O, R]``."""
        named: dict[str, Tensor] = {}
        start = 0
        for target in self.targets:
            for kind, shape in (
                ("lora_A", (self.rank, target.num_in)),
                ("lora_B", (target.num_out, self.rank)),
            ):
                end = start + shape[0] * shape[1]
                named[f"{target.name}.{kind}.weight"] = (
                    self.flat_KP[slot, start:end].view(*shape).detach().cpu().clone()
                )
                start = end
        return named


@torch.no_grad()
def mix_rows(flat_KP: Tensor, source: int, target: int, mixture: float) -> None:
    """Row ``target`` becomes ``mixture`` x row ``source`` + (1 - ``mixture``) x itself, in place."""
    if mixture == 1:
        flat_KP[target].copy_(flat_KP[source])  # exactly, and even over a NaN
    else:
        flat_KP[target].lerp_(flat_KP[source], mixture)


class StackedLoRALinear(nn.Module):
    """A frozen linear layer plus the active slots' adapters."""

    def __init__(self, base: nn.Module, stack: AdapterStack, index: int) -> None:
        """``base``: any layer from ``[..., D]`` to ``[..., O]``; ``index``: its place in ``stack.targets``."""
        super().__init__()
        self.base = base
        self._stack, self._index = stack, index

    def forward(self, inputs: Tensor) -> Tensor:
        """``[K x rows, ..., D] -> [K x rows, ..., O]``; one base matmul, whatever K."""
        outputs = self.base(inputs)
        view = self._stack.active
        if view is None:
            return outputs
        a_KRD, b_KOR = view.pairs[self._index]
        num_slots = view.num_slots
        if a_KRD.dtype != inputs.dtype:  # a bf16 base keeps fp32 adapters
            a_KRD, b_KOR = a_KRD.to(inputs.dtype), b_KOR.to(inputs.dtype)
        down_KMR = torch.bmm(inputs.reshape(num_slots, -1, inputs.shape[-1]), a_KRD.transpose(1, 2))
        up_KMO = torch.baddbmm(
            outputs.reshape(num_slots, -1, outputs.shape[-1]),
            down_KMR,
            b_KOR.transpose(1, 2),
            alpha=self._stack.scale,
        )
        return up_KMO.view(outputs.shape)


def attach(
    body: nn.Module, num_slots: int, rank: int, alpha: int, chosen: AdaptersSpec | None = None
) -> AdapterStack:
    """Replace the body's linear layers, in place, by layers that carry ``num_slots`` adapters.

    Layers that already carry adapters of an earlier bank are unwrapped first. ``chosen``: which layers.

    Raises:
        SpecError: the body has no linear layer to adapt, or not those that were asked for.
    """
    detach(body)
    found = find_targets(body, chosen)
    device = next(found[0][1].parameters()).device
    targets = [Target(name, *(size_of(layer) or (0, 0))) for name, layer in found]
    stack = AdapterStack(targets, num_slots, rank, alpha, device)
    for index, (name, layer) in enumerate(found):
        _replace(body, name, StackedLoRALinear(layer, stack, index))
    return stack


def detach(body: nn.Module) -> None:
    """Undo :func:`attach`."""
    wrapped = [(n, m) for n, m in body.named_modules() if isinstance(m, StackedLoRALinear)]
    for name, layer in wrapped:
        _replace(body, name, layer.base)


def _replace(body: nn.Module, name: str, new: nn.Module) -> None:
    parent_name, _, child = name.rpartition(".")
    setattr(body.get_submodule(parent_name), child, new)
