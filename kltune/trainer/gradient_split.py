"""A loss and its graph in, how much of its gradient the KL makes out. Training is left as it was, bit for bit.

The gradient of the KL alone is taken first, over the graph that the whole loss then uses up; the
rest of the gradient is the whole less that. Shapes: K active slots, B rows, T tokens, P parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from kltune.trainer.batch import Batch, Credit, Measured
from kltune.trainer.credit import paid_part
from kltune.trainer.loss import LossInputs, LossRule, LossTerms, kl_part
from kltune.trainer.parts import BankParts
from kltune.trainer.stack import TrainableView


@dataclass(slots=True)
class GradientSplit:
    """Measures the slots that are due: in the first step, and in each after a periodic evaluation."""

    parts: BankParts
    batch: Batch
    measured: Measured
    credits: list[Credit]
    is_first: bool
    """Whether these are the first rows of the step's first update; no others are measured."""
    _losses: dict[int, Tensor] = field(default_factory=dict[int, Tensor])
    """The KL's part of a slot's loss, by its place in the batch."""
    _grad_KP: Tensor | None = None

    def add(self, row: int, index_B: Tensor, inputs: LossInputs, rule: LossRule) -> None:
        """Note the KL's part in the loss of a slot's rows ``index_B``, if the slot is due and pays for KL."""
        if not self._is_due(row) or self.credits[row].prices.coefficient == 0.0:
            return
        paid_NT = paid_part(self.parts, self.batch, self.measured, self.credits[row], row)
        part = kl_part(inputs, rule, None if paid_NT is None else paid_NT[index_B])
        self._losses[row] = part

    def take(self, view: TrainableView) -> None:
        """Take the gradient of the KL's parts, and keep their graph; the gradients of ``view`` stay 0."""
        if not self._losses:
            return
        view.add_gradients(torch.stack(list(self._losses.values())).sum(), retain_graph=True)
        # All weights of a model a second time may not fit beside the moments.
        is_full = self.parts.is_full
        self._grad_KP = view.grad_KP.to("cpu", copy=True) if is_full else view.grad_KP.clone()
        view.grad_KP.zero_()

    def shared(self, terms: list[LossTerms], view: TrainableView) -> list[LossTerms]:
        """The terms with the KL's share where it was due; ``view`` holds the whole gradient of the same rows."""
        return [
            replace(term, grad_kl_share=self._share(row, view.grad_KP[row]))
            if self._is_due(row)
            else term
            for row, term in enumerate(terms)
        ]

    def _is_due(self, row: int) -> bool:
        every = self.parts.settings.evaluate.every
        return self.is_first and self.batch.states[row].step % every == 0

    def _share(self, row: int, whole_P: Tensor) -> float | None:
        """Norm of the KL's gradient / (that + norm of the rest); none where both are 0."""
        if self._grad_KP is None or row not in self._losses:
            return 0.0 if bool(whole_P.any()) else None
        kl_P = self._grad_KP[row]
        kl = float(kl_P.norm())
        total = kl + float((whole_P.to(kl_P.device) - kl_P).norm())
        return None if total == 0.0 else kl / total
