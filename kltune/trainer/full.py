"""A causal language model in, whole copies of its weights that can be trained out: one flat row per copy.

The counterpart of :class:`kltune.trainer.lora.AdapterStack` where every weight is
trained. The base's own parameters are never written and never share storage with a row.
Tied weights are one stretch of the row. Shapes: K rows (a view has one), P parameters.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor, nn

from kltune.errors import SpecError
from kltune.trainer.lora import Target, mix_rows


class FullView:
    """One row as autograd leaves that share its storage."""

    def __init__(self, stack: FullWeights, row: int) -> None:
        """Cut row ``row`` into one leaf per weight of the model."""
        self.flat_KP, self.grad_KP = stack.flat_KP[row : row + 1], stack.grad_KP[row : row + 1]
        self.leaves = [piece.detach().requires_grad_(True) for piece in stack.cut(self.flat_KP[0])]
        self._gradients = stack.cut(self.grad_KP[0])
        self.pairs: list[tuple[Tensor, Tensor]] = []
        """Empty: no adapters."""

    @property
    def num_slots(self) -> int:
        """1."""
        return self.flat_KP.shape[0]

    def add_gradients(self, loss: Tensor, *, retain_graph: bool = False) -> None:
        """Add the gradient of ``loss`` to ``grad_KP``; ``retain_graph``: another loss of the same graph follows.

        A weight that ``loss`` does not depend on (the head, under a critic's loss) gets none.
        """
        new = cast(
            "tuple[Tensor | None, ...]",  # torch declares no None
            torch.autograd.grad(loss, self.leaves, allow_unused=True, retain_graph=retain_graph),
        )
        for kept, gradient in zip(self._gradients, new, strict=True):
            if gradient is not None:
                kept.add_(gradient)


class FullWeights:
    """Copies of all weights of a model, one flat row each, in the base's own type."""

    def __init__(self, model: nn.Module, num_rows: int, device: torch.device) -> None:
        """All rows zero; :meth:`reset` starts one.

        Build it after the model is frozen and placed; its parameters must stay where they are.

        Raises:
            SpecError: the base is not float32 (or float64): small steps would be lost in bfloat16,
                and float32 rows would differ from their own bfloat16 reference at step 0.
        """
        self.targets: tuple[Target, ...] = ()
        self._model = model
        # named_parameters gives a tied weight once, by its first name.
        self._base = dict(model.named_parameters())
        self._homes = _homes(model, list(self._base.values()))
        self.num_parameters = sum(parameter.numel() for parameter in self._base.values())
        dtypes = {parameter.dtype for parameter in self._base.values()}
        dtype = dtypes.pop()
        if dtypes or dtype not in (torch.float32, torch.float64):
            raise SpecError(
                "model.dtype: finetune full trains the base's own weights, which must be float32 "
                "(trainer.precision bf16 is fine: arithmetic alone)"
            )
        self.flat_KP = torch.zeros(num_rows, self.num_parameters, device=device, dtype=dtype)
        self.grad_KP = torch.zeros_like(self.flat_KP)
        self._views: dict[int, FullView] = {}
        self.active: FullView | None = None

    def cut(self, flat_P: Tensor) -> list[Tensor]:
        """A row as one tensor per weight, in the model's order, without a copy."""
        sizes = [parameter.numel() for parameter in self._base.values()]
        pieces = flat_P.split(sizes)
        return [p.view(base.shape) for p, base in zip(pieces, self._base.values(), strict=True)]

    @torch.no_grad()
    def reset(self, slot: int, seed: int) -> None:  # noqa: ARG002 - the start is the base, whatever the seed
        """Copy the base's weights into a row."""
        for piece, base in zip(self.cut(self.flat_KP[slot]), self._base.values(), strict=True):
            piece.copy_(base)

    def clear(self, slot: int) -> None:
        """Zero a row, so that nothing of an ended trial stays."""
        self.flat_KP[slot].zero_()
        self.grad_KP[slot].zero_()

    def copy_row(self, source: int, target: int, mixture: float = 1.0) -> None:
        """``target = mixture x source + (1 - mixture) x target``; gradients stay."""
        mix_rows(self.flat_KP, source, target, mixture)

    def view(self, slots: Sequence[int]) -> FullView:
        """One row, sharing the storage.

        Raises:
            ValueError: not exactly one row: a forward has one set of weights.
        """
        if len(slots) != 1:
            raise ValueError(f"a model runs with one row of weights at a time (got {list(slots)})")
        row = range(self.flat_KP.shape[0])[slots[0]]
        if row not in self._views:
            self._views[row] = FullView(self, row)
        return self._views[row]

    def collect(self, view: FullView, slots: Sequence[int]) -> None:
        """Nothing to bring home: a view's gradients are the storage's."""

    @contextmanager
    def use(self, view: FullView | None) -> Generator[None]:
        """Run forwards with this row's weights; None: the frozen base."""
        before = self.active
        self._put(view)
        try:
            yield
        finally:
            self._put(before)

    def _put(self, view: FullView | None) -> None:
        self.active = view
        weights = list(self._base.values()) if view is None else view.leaves
        for module, name, index in self._homes:
            # As torch.func.functional_call does: a leaf is no nn.Parameter, so past __setattr__.
            module._parameters[name] = weights[index]  # pyright: ignore[reportArgumentType, reportPrivateUsage]

    def tensors(self, slot: int) -> dict[str, Tensor]:
        """A row's weights by the model's names, a tied one once."""
        pieces = self.cut(self.flat_KP[slot])
        return {name: p.detach().cpu().clone() for name, p in zip(self._base, pieces, strict=True)}


def _homes(
    model: nn.Module, parameters: Sequence[nn.Parameter]
) -> list[tuple[nn.Module, str, int]]:
    """Every (module, name) that holds a parameter, and which one; tied ones have several."""
    index = {id(parameter): place for place, parameter in enumerate(parameters)}
    return [
        (module, name, index[id(parameter)])
        for module in model.modules()
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False)
    ]
