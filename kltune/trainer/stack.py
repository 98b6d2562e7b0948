"""What the trainer asks of trainable weights, one flat row per slot: LoRA adapters or the whole model.

Shapes: K rows of a view, R rows of the storage, P parameters of one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar, runtime_checkable

from torch import Tensor


@runtime_checkable
class TrainableView(Protocol):
    """Some rows as autograd leaves."""

    flat_KP: Tensor
    """Weights, ``[K, P]``."""
    grad_KP: Tensor
    """Gradients that :meth:`add_gradients` adds to, ``[K, P]``."""

    @property
    def num_slots(self) -> int:
        """K."""
        ...

    def add_gradients(self, loss: Tensor, *, retain_graph: bool = False) -> None:
        """Add the gradient of ``loss`` to ``grad_KP``; leaves that it does not reach get none.

        ``retain_graph``: another loss of the same graph follows.
        """
        ...


View = TypeVar("View", bound=TrainableView)


@runtime_checkable
class TrainableStack(Protocol[View]):
    """The storage of all rows, and the switch between them and the frozen base."""

    flat_KP: Tensor
    """Weights, ``[R, P]``."""
    grad_KP: Tensor
    """Gradients, ``[R, P]``."""
    num_parameters: int
    """P."""

    def reset(self, slot: int, seed: int) -> None:
        """Start a row: the model it makes is the base."""
        ...

    def clear(self, slot: int) -> None:
        """Zero a row and its gradient."""
        ...

    def copy_row(self, source: int, target: int, mixture: float = 1.0) -> None:
        """``target = mixture x source + (1 - mixture) x target``; gradients stay."""
        ...

    def view(self, slots: Sequence[int]) -> View:
        """Rows as leaves; a range of rows in order shares the storage."""
        ...

    def collect(self, view: View, slots: Sequence[int]) -> None:
        """Bring the gradients of a view that does not share the storage to its rows."""
        ...

    def use(self, view: View | None) -> AbstractContextManager[None]:
        """Run forwards with these weights; None: the frozen base."""
        ...

    def tensors(self, slot: int) -> dict[str, Tensor]:
        """A row's weights by name, as copies on the CPU."""
        ...
